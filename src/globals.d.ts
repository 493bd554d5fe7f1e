// The declarations of @connectrpc/connect use this DOM name, which Node's own types lack.
type HeadersInit = NonNullable<ConstructorParameters<typeof Headers>[0]>;
