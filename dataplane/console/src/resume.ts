/** How a page that was just loaded begins: back from the provider, with a sign-in that stayed in the tab, or with nobody. */
import { errorOf } from "./lib/error-of.ts";
import { addressIn, replace, signInOrganization, wantedView } from "./router.ts";
import { enter, isTaken, kept, provider, resumePerson, returned, signIn, signInOf } from "./session.ts";

/** Signs in with the provider's answer or with what stayed in the tab, if there is either. */
export async function resume(): Promise<void> {
  const address = new URL(location.href);
  const organization = signInOrganization(address);
  if (organization !== null && (await provider()).isReturn(address)) {
    await comeBack(organization, address);
    return;
  }
  const { person, key } = kept();
  if (person !== null) {
    const id = person.at.organization_id;
    if (organization === id) {
      if (await isTaken(() => resumePerson(person))) replace(addressIn(wantedView(address)));
    } else if (organization === null) {
      // Only the organization's own page may ask the provider for new tokens, by its policy.
      const to = wantedView(address);
      location.replace(
        `/console/sign-in/${encodeURIComponent(id)}?${new URLSearchParams({ to }).toString()}`,
      );
      await new Promise(() => {});
    }
    return;
  }
  if (key !== null && organization === null) await isTaken(() => signIn(key, true));
}

async function comeBack(organization: string, address: URL): Promise<void> {
  // The code in the address is used up, and must not be seen or shared.
  replace(address.pathname);
  try {
    const at = await signInOf(organization);
    const { tokens, stay, to } = await (await provider()).arrive(at, address);
    await enter(at, tokens, stay);
    replace(addressIn(to));
  } catch (error) {
    returned.set(errorOf(error));
  }
}
