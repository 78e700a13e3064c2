"""`temper doctor`: what somebody would look at who has debugged local models for years."""
