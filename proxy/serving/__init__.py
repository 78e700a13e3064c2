"""What is served, without HTTP: the models, what is known of them, and what a request needs."""
