"""Tools described in the prompt, for backends and chat templates that cannot render them."""
