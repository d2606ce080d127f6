// Checks addresses from an agent: only a few schemes are allowed, and pictures only as inline data.

const FOLLOWED = ["http:", "https:", "mailto:"];
/** Raster formats, which cannot run code or load anything. */
const PICTURE = /^data:image\/(png|jpeg|gif|webp|avif);base64,[a-z0-9+/=]+$/i;
const SOUND_OR_FILM = /^data:(audio|video)\/[a-z0-9.+-]+;base64,[a-z0-9+/=]+$/i;

/**
 * An address that may be linked; undefined for `javascript:`, `data:` and others, and for invalid
 * addresses.
 */
export function safeLink(text: string): string | undefined {
  const url = parse(text.trim());
  return url && FOLLOWED.includes(url.protocol) ? url.href : undefined;
}

/** A picture that is inline, so that no server is contacted. */
export function safePicture(text: string): string | undefined {
  return PICTURE.test(text) ? text : undefined;
}

/** Inline sound or video. */
export function safeMedia(text: string): string | undefined {
  return SOUND_OR_FILM.test(text) ? text : undefined;
}

function parse(text: string): URL | undefined {
  try {
    // Without a base, so that an agent's text cannot name paths on this server.
    return new URL(text);
  } catch {
    return undefined;
  }
}
