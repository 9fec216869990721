"""Images: decoding, preprocessing, random views, the cache of decoded pictures."""
