"""A figure as small as a card shows it: the gallery loads one for every notebook."""

import io

from PIL import Image

_WIDTH = 640  # twice the width of a card, for dense screens


def thumbnail(picture: bytes) -> bytes:
    """A picture in a width that is enough for a card, as WebP, which keeps a hundred of them below 2 MB."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    if image.width > _WIDTH:
        image = image.resize((_WIDTH, round(image.height * _WIDTH / image.width)), Image.Resampling.LANCZOS)
    small = io.BytesIO()
    image.save(small, format="webp", quality=80, method=6)
    return small.getvalue()
