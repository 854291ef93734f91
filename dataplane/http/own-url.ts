/**
 * Where clients of this machine call a server, of the address that Fastify says it listens at: that of `0.0.0.0` names
 * 127.0.0.1 already, that of `::` names the wildcard, which not every client can call.
 */
export const ownUrl = (address: string): string => address.replace("//[::]:", "//127.0.0.1:");
