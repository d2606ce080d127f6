// Addresses that an agent wrote: only a few schemes may be followed, and pictures only if they
// bring their bytes along.

const FOLLOWED = ["http:", "https:", "mailto:"];
/** Raster formats: they hold nothing that could run or load anything. */
const PICTURE = /^data:image\/(png|jpeg|gif|webp|avif);base64,[a-z0-9+/=]+$/i;
const SOUND_OR_FILM = /^data:(audio|video)\/[a-z0-9.+-]+;base64,[a-z0-9+/=]+$/i;

/**
 * An address to link to; nothing for `javascript:`, `data:` and the like, or for what is no
 * address.
 */
export function safeLink(text: string): string | undefined {
  const url = parse(text.trim());
  return url && FOLLOWED.includes(url.protocol) ? url.href : undefined;
}

/** A picture that can be shown without asking anybody for it. */
export function safePicture(text: string): string | undefined {
  return PICTURE.test(text) ? text : undefined;
}

/** Sound or film that brings its bytes along. */
export function safeMedia(text: string): string | undefined {
  return SOUND_OR_FILM.test(text) ? text : undefined;
}

function parse(text: string): URL | undefined {
  try {
    // Without a base: an agent's text must not name places on this server.
    return new URL(text);
  } catch {
    return undefined;
  }
}
