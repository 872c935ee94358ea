"""``distribute``: ranks share one model's layers; steps are drawn, proved and measured, then a load is played."""
