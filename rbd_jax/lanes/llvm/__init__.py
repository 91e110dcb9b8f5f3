"""From the intermediate representation to LLVM text, and from text to object code."""
