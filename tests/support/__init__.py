"""What tests share: generators of values, independent implementations to compare with, and servers that they start."""
