"""From the jaxpr of a program to the intermediate representation."""
