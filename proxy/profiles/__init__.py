"""Profiles of model families (config/models), and their selection for a model.

`files` reads the `profile` of each model family; `recognition` selects the profile of a model.
`known_model` combines that profile with the model's chat template and the operator's overrides, and
`known_models` looks up models at a backend and caches the results.

`tried_models` stores the measurements of `temper doctor`, and `tuned` reads the settings that
`temper tune` measured.

The `Quirks` of a model, which the guardrails read, are defined in `proxy.guardrails.model_quirks`.
"""
