"""Functions of a program as tools for a model: described, called, and told about.

`function` is a tool and its decorator, `signature` what a function says of itself, `schema` the
JSON schema of that and typed values of calls, `results` what a model reads of a result, `execution`
runs the calls of a reply, `toolset` is what a program offers. It knows neither models nor backends.
"""
