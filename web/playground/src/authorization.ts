// The key of this tab. Other tabs do not see it, and it is lost when the tab closes.

const STORED_KEY = "capstan-key";

export function storedKey(): string {
  return sessionStorage.getItem(STORED_KEY) ?? "";
}

export function keepKey(key: string): void {
  sessionStorage.setItem(STORED_KEY, key);
}

export function authorization(key: string): Record<string, string> {
  return key === "" ? {} : { authorization: `Bearer ${key}` };
}
