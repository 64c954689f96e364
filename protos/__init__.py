"""Our own .proto files and the modules generated from them by `make protos`.

Field numbers and types are facts of the App Engine wire; the proto package (`pbserver.*`) is ours, so that one
process can hold these classes and an SDK's. Text fields are declared `bytes` where the server only compares or
carries them: that spares a UTF-8 decode per field and keeps bytes exactly as the client sent them.
"""
