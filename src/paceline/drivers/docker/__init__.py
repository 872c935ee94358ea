"""The Docker driver: its requests as data, images and what is in them, devices, and how containers end."""
