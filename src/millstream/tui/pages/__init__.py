"""The screens of `top`, one module each."""
