"""The effect of Temper on replies without errors, compared with a direct connection."""
