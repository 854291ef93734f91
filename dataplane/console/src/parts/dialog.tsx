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
        // Browsers close a dialog at the second Escape even if the first was prevented.
        if (stays) element.current?.showModal();
        else if (element.current !== null) onClose();
      }}
    >
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

/** Gives the focus back to the opener; if that disappears because of the answer, to the heading of the view. */
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
  // A person who moves the focus elsewhere keeps it there.
  document.addEventListener("focusin", () => watcher.disconnect(), { once: true });
}

/** Opens what hides a field that is not valid: a browser tells nothing of one that cannot have the focus, and submits nothing. */
function uncover(field: EventTarget | null): void {
  const around = field instanceof Element ? field.closest("details") : null;
  if (around !== null) around.open = true;
}

interface FormDialogProps extends Omit<DialogProps, "stays"> {
  /** Label of the button that submits. */
  readonly action: string;
  readonly dangerous?: boolean;
  /** Label of the button that changes nothing; "Cancel" unless the question itself is about cancelling. */
  readonly dismissal?: string;
  /** Submits; an error is shown, and the dialog stays. */
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
  // While it submits the dialog stays, as it may have something to show: a new key is shown once.
  return (
    <Dialog title={title} stays={busy} onClose={onClose}>
      <form
        class="stack"
        method="post"
        onInvalidCapture={(event) => uncover(event.target)}
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
