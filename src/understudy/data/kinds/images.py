"""Images of one size, each a row."""

from typing import ClassVar

from understudy.data.arrays import ArrayTable
from understudy.data.images import ImageSchema
from understudy.data.kinds.arrays import ArrayKind


class ImageKind(ArrayKind[ImageSchema]):
    name: ClassVar[str] = ImageSchema.kind
    plural: ClassVar[str] = "images"
    nobody: ClassVar[str] = "Nobody's image is among them."

    def names(self, schema: ImageSchema, party: str) -> list[str]:
        return [f"{party}.{pixel}" for pixel in schema.names]


IMAGES = ImageKind(ImageSchema, ArrayTable)
