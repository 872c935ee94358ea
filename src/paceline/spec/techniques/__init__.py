"""What techniques may not do, told to their authors: in what they say of themselves, and in their source."""
