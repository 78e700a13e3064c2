"""The vocabulary of a conversation with a model; it knows no wire format and does no I/O.

Glossary, one word per idea, used everywhere:

message      one entry of the history: role, content, tool calls or a tool result
request      everything a client asked for at once: messages, tools and how to use them
tool         a function the client can run, described by a JSON schema
tool call    the model's wish to run a tool, with arguments
reply        what a model produced for one question
event        one step of a reply while it is being generated
question     what is put to the backend in one attempt: a request plus how to constrain it
turn         the work from a request to the answer the client gets: one or more questions
verdict      the judgement of one reply: accepted or rejected
nudge        messages appended to the history that tell the model what was wrong
syntax       a textual form in which models write tool calls
dialect      a wire format spoken at an edge of the proxy
profile      what is known about a model family
backend      the engine that runs the model
slot         a place in a backend that generates for one request at a time
"""
