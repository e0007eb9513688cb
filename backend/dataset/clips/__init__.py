"""What is known of recordings and clips: the types, and the pure rules over them."""
