"""What a customer asks for: operations, how they refer to each other, what is added later."""
