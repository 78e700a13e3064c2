"""The words by which models announce an act, one module a language.

`registry` lists the languages by script; each holds `cues`, which `matching` looks for in the
last sentence that `endings` finds. The languages: `arabic`, `chinese`, `dutch`, `english`,
`french`, `german`, `hindi`, `italian`, `japanese`, `korean`, `polish`, `portuguese`, `russian`,
`spanish`, `turkish`, `vietnamese`.
"""
