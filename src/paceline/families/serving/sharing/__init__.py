"""One model's layers shared between ranks: steps drawn, proved, measured, and a load played by what they cost."""
