/** A question or a form over the page. The browser keeps the focus in it, and gives it back when it closes. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { errorOf } from "../lib/error-of.ts";
import { useTexts } from "../texts/texts.ts";
import { Button, Problem } from "./basics.tsx";

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  /** Escape does not close it. */
  readonly stays?: boolean;
  readonly children: ComponentChildren;
}

export function Dialog({ title, onClose, stays = false, children }: DialogProps) {
  const id = useId();
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const opener = document.activeElement;
    const dialog = element.current;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (opener instanceof HTMLElement) giveBack(opener);
    };
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        if (!stays) onClose();
      }}
      onClose={() => {
        // A browser lets nobody be held: it closes at the second Escape whatever is said at the first.
        if (stays) element.current?.showModal();
        else if (element.current !== null) onClose();
      }}
    >
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

/** What asked has the focus again; when it goes because of the answer, the reader goes on at the top of the view. */
function giveBack(opener: HTMLElement): void {
  opener.focus();
  const goOn = () => {
    if (document.activeElement === document.body) document.querySelector<HTMLElement>("main h1")?.focus();
  };
  if (!opener.isConnected) return goOn();
  const watcher = new MutationObserver(() => {
    if (opener.isConnected) return;
    watcher.disconnect();
    goOn();
  });
  watcher.observe(document.body, { childList: true, subtree: true });
  // Whoever goes elsewhere has a place of their own.
  document.addEventListener("focusin", () => watcher.disconnect(), { once: true });
}

interface FormDialogProps extends Omit<DialogProps, "stays"> {
  /** Of the button that does it. */
  readonly action: string;
  readonly dangerous?: boolean;
  /** Of the button that leaves all as it is; "Cancel" unless that is what the question is about. */
  readonly dismissal?: string;
  /** Does it; what it throws is shown, and the dialog stays. */
  readonly onSubmit: () => Promise<void>;
}

export function FormDialog({
  title,
  action,
  dangerous = false,
  dismissal,
  onSubmit,
  onClose,
  children,
}: FormDialogProps) {
  const t = useTexts();
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Error | null>(null);
  const submit = async () => {
    setBusy(true);
    setProblem(null);
    try {
      await onSubmit();
    } catch (error) {
      setProblem(errorOf(error));
    } finally {
      setBusy(false);
    }
  };
  // What is under way has something to show: a new key is told once.
  return (
    <Dialog title={title} stays={busy} onClose={onClose}>
      <form
        class="stack"
        method="post"
        onSubmit={(event) => {
          event.preventDefault();
          if (!busy) void submit();
        }}
      >
        {children}
        {problem !== null && <Problem problem={problem} />}
        <div class="row end">
          <Button disabled={busy} onClick={onClose}>
            {dismissal ?? t.common.cancel}
          </Button>
          <Button submits kind={dangerous ? "danger" : "primary"} disabled={busy}>
            {action}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
