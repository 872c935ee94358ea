"""What training needs of a rank's memory: planned, held, and made and freed within a step."""
