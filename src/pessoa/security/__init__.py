"""What clients may do and how they prove who they are: `authorizer` decides about access, `sasl` about identity."""
