"""``denoise``: ranks share the denoising of images by a small model that is really trained."""
