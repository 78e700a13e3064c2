"""Model knowledge: families from config/models, and everything known of one model.

`files` reads a `profile` for each model family; `recognition` selects the profile of a model.
`known_model` combines that profile with the model's chat template and the operator's overrides, and
`known_models` looks a model up at its backend and caches the result.

Two kinds of measurements refine this: `tried_models` stores the figures of `temper doctor`, and
`tuned` reads the settings of `temper tune`.

The `Quirks` of a model, which the guardrails read, are defined in `proxy.guardrails.model_quirks`.
"""
