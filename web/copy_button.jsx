import { useEffect, useState } from "preact/hooks";

const kShown_ms = 1500;

// Absent where the browser gives no clipboard (a page over plain HTTP from another machine).
export function CopyButton({ text, label }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), kShown_ms);
    return () => clearTimeout(timer);
  }, [copied]);
  if (!navigator.clipboard) return null;
  return (
    <button type="button" class="quiet" aria-label={label} onClick={() => navigator.clipboard.writeText(text).then(() => setCopied(true), () => {})}>
      {copied ? "Copied" : "Copy"}
    </button>
  );
}
