"""Kim's recursive derivatives along a scalar, Tables 5 to 7.

They are independent of the rules of the library, and tests compare the two.
"""
