"""The simulated service: function instances, the stores that they call, and how clients reach them."""
