/** Generated from the OpenAPI document: `npm run generate`. */

export type MessagesError = {
  readonly type: "error";
  readonly error: {
    readonly type: string;
    readonly message: string;
  };
  readonly request_id: string;
};

export type OpenAIError = {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string | null;
  };
};

export type Organization = {
  readonly id: string;
  readonly type: "organization";
  readonly name: string;
};

export type ConsoleSignIn = {
  readonly type: "console_sign_in";
  readonly organization_id: string;
  readonly issuer: string;
  readonly client_id: string;
  readonly scopes: readonly (string)[];
  readonly audience: string | null;
  readonly resource: string | null;
};

export type Limits = {
  readonly credits: {
    readonly amount: string;
    readonly per: "day" | "week" | "month" | "total";
  } | null;
  readonly models: readonly (string)[] | null;
  readonly requests_per_minute: number | null;
  readonly tokens_per_minute: number | null;
  readonly concurrent_requests: number | null;
};

export type Standing = {
  readonly scope: "key" | "project";
  readonly per: "day" | "week" | "month" | "total";
  readonly amount: string;
  readonly spent: string;
  readonly held: string;
  readonly left: string;
  readonly begins_anew_at: string | null;
};

export type LimitsChange = {
  readonly credits?: {
    readonly amount: string;
    readonly per: "day" | "week" | "month" | "total";
  } | null;
  readonly models?: readonly (string)[] | null;
  readonly requests_per_minute?: number | null;
  readonly tokens_per_minute?: number | null;
  readonly concurrent_requests?: number | null;
};

export type ApiKey = {
  readonly id: string;
  readonly type: "api_key";
  readonly name: string;
  readonly workspace_id: string;
  readonly created_at: string;
  readonly created_by: {
    readonly id: string;
    readonly type: "user";
  };
  readonly partial_key_hint: string;
  readonly status: "active" | "inactive";
  readonly last_used_at: string | null;
  readonly declared_in: string | null;
  readonly expires_at: string | null;
  readonly limits: Limits | null;
  readonly standing: readonly (Standing)[];
  readonly scope: {
    readonly type: "workspace";
    readonly workspace_id: string;
  };
  readonly principal: null;
};

export type NewApiKey = {
  readonly id: string;
  readonly type: "api_key";
  readonly name: string;
  readonly workspace_id: string;
  readonly created_at: string;
  readonly created_by: {
    readonly id: string;
    readonly type: "user";
  };
  readonly partial_key_hint: string;
  readonly status: "active" | "inactive";
  readonly last_used_at: string | null;
  readonly declared_in: string | null;
  readonly expires_at: string | null;
  readonly limits: Limits | null;
  readonly standing: readonly (Standing)[];
  readonly scope: {
    readonly type: "workspace";
    readonly workspace_id: string;
  };
  readonly principal: null;
  readonly key: string;
};

export type ApiKeyList = {
  readonly object: "list";
  readonly data: readonly (ApiKey)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type NewKey = {
  readonly name: string;
  readonly expires_at?: string | number | null;
  readonly limits?: LimitsChange | null;
};

export type KeyChange = {
  readonly name?: string | null;
  readonly status?: "active" | "inactive" | null;
  readonly expires_at?: string | number | null;
  readonly limits?: LimitsChange | null;
};

export type ProjectChange = {
  readonly limits?: LimitsChange | null;
};

export type Key = {
  readonly object: "key";
  readonly id: string;
  readonly name: string;
  readonly project_id: string;
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly limits: Limits | null;
  readonly standing: readonly (Standing)[];
};

export type Project = {
  readonly id: string;
  readonly object: "organization.project";
  readonly name: string;
  readonly created_at: number;
  readonly status: "active" | "archived";
  readonly archived_at: number | null;
  readonly limits_declared_in: string | null;
  readonly limits: Limits | null;
  readonly standing: readonly (Standing)[];
};

export type ProjectList = {
  readonly object: "list";
  readonly data: readonly (Project)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type ProjectApiKey = {
  readonly object: "organization.project.api_key";
  readonly id: string;
  readonly name: string;
  readonly redacted_value: string;
  readonly created_at: number;
  readonly last_used_at: number | null;
  readonly declared_in: string | null;
  readonly expires_at: number | null;
  readonly limits: Limits | null;
  readonly standing: readonly (Standing)[];
  readonly owner: {
    readonly type: string;
  };
  readonly owner_project_access: "active";
};

export type NewProjectApiKey = {
  readonly object: "organization.project.api_key";
  readonly id: string;
  readonly name: string;
  readonly redacted_value: string;
  readonly created_at: number;
  readonly last_used_at: number | null;
  readonly declared_in: string | null;
  readonly expires_at: number | null;
  readonly limits: Limits | null;
  readonly standing: readonly (Standing)[];
  readonly owner: {
    readonly type: string;
  };
  readonly owner_project_access: "active";
  readonly value: string;
};

export type ProjectApiKeyList = {
  readonly object: "list";
  readonly data: readonly (ProjectApiKey)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type DeletedProjectApiKey = {
  readonly object: "organization.project.api_key.deleted";
  readonly id: string;
  readonly deleted: true;
};

export type Credits = {
  readonly object: "organization.credits";
  readonly granted: string;
  readonly used: string;
  readonly held: string;
  readonly available: string;
  readonly storage: {
    readonly bytes: number;
    readonly max_bytes: number;
    readonly files: number;
    readonly max_files: number;
  };
  readonly grants: readonly ({
    readonly name: string;
    readonly amount: string;
    readonly granted_at: string;
    readonly source: "declared" | "command";
  })[];
};

export type ConfigurationObject = {
  readonly id: string;
  readonly object: "organization.configuration";
  readonly kind: "Organization" | "ModelRoute" | "ToolPolicy" | "PriceTable";
  readonly namespace: string;
  readonly name: string;
  readonly generation: number;
  readonly conditions: readonly ({
    readonly type: string;
    readonly status: string;
    readonly reason: string;
    readonly message: string;
  })[];
};

export type ConfigurationList = {
  readonly object: "list";
  readonly data: readonly (ConfigurationObject)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type Request = {
  readonly object: "organization.request";
  readonly id: string;
  readonly created_at: number;
  readonly api_key_id: string | null;
  readonly project_id: string | null;
  readonly dialect: string | null;
  readonly path: "relay" | "convert" | "tools" | null;
  readonly model: string | null;
  readonly status: number;
  readonly error_code: string | null;
  readonly streamed: boolean;
  readonly first_byte_ms: number | null;
  readonly duration_ms: number;
  readonly tries: readonly ({
    readonly status: number | null;
    readonly reason: string | null;
    readonly ms: number;
  })[];
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly credits: string;
  readonly tool_calls: number;
  readonly batch_id: string | null;
  readonly tags: Readonly<Record<string, unknown>>;
};

export type RequestList = {
  readonly object: "list";
  readonly data: readonly (Request)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type User = {
  readonly object: "organization.user";
  readonly id: string;
  readonly name: string | null;
  readonly role: "member" | "viewer" | "admin";
  readonly project_id: string | null;
  readonly added_at: number;
  readonly last_used_at: number | null;
  readonly limits: Limits | null;
  readonly standing: readonly (Standing)[];
};

export type UserList = {
  readonly object: "list";
  readonly data: readonly (User)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type MessagesUsageReport = {
  readonly data: readonly ({
    readonly starting_at: string;
    readonly ending_at: string;
    readonly results: readonly ({
      readonly uncached_input_tokens: number;
      readonly cache_read_input_tokens: number;
      readonly cache_creation: {
        readonly ephemeral_5m_input_tokens: number;
        readonly ephemeral_1h_input_tokens: number;
      };
      readonly output_tokens: number;
      readonly server_tool_use: {
        readonly web_search_requests: number;
      };
      readonly api_key_id: string | null;
      readonly workspace_id: string | null;
      readonly model: string | null;
      readonly service_tier: string | null;
      readonly context_window: number | null;
      readonly tag: {
        readonly name: string;
        readonly value: string;
      } | null;
    })[];
  })[];
  readonly has_more: boolean;
  readonly next_page: number | null;
};

export type CostReport = {
  readonly results: readonly ({
    readonly currency: "IDR";
    readonly amount: string;
    readonly credits: string;
    readonly description: string | null;
    readonly cost_type: "tokens" | "web_search" | "web_fetch" | "x_search" | null;
    readonly model: string | null;
    readonly token_type: string | null;
    readonly service_tier: string | null;
    readonly tag: {
      readonly name: string;
      readonly value: string;
    } | null;
  })[];
  readonly data: readonly ({
    readonly starting_at: string;
    readonly ending_at: string;
    readonly results: readonly ({
      readonly currency: "IDR";
      readonly amount: string;
      readonly credits: string;
      readonly description: string | null;
      readonly cost_type: "tokens" | "web_search" | "web_fetch" | "x_search" | null;
      readonly model: string | null;
      readonly token_type: string | null;
      readonly service_tier: string | null;
      readonly tag: {
        readonly name: string;
        readonly value: string;
      } | null;
    })[];
  })[];
  readonly has_more: boolean;
  readonly next_page: number | null;
};

export type CompletionsUsage = {
  readonly results: readonly ({
    readonly object: "organization.usage.completions.result";
    readonly input_tokens: number;
    readonly input_cached_tokens: number;
    readonly output_tokens: number;
    readonly num_model_requests: number;
    readonly credits: string;
    readonly model: string | null;
    readonly api_key_id: string | null;
    readonly project_id: string | null;
    readonly batch: boolean | null;
    readonly service_tier: string | null;
    readonly tag: {
      readonly name: string;
      readonly value: string;
    } | null;
  })[];
  readonly object: "page";
  readonly data: readonly ({
    readonly object: "bucket";
    readonly start_time: number;
    readonly end_time: number;
    readonly results: readonly ({
      readonly object: "organization.usage.completions.result";
      readonly input_tokens: number;
      readonly input_cached_tokens: number;
      readonly output_tokens: number;
      readonly num_model_requests: number;
      readonly credits: string;
      readonly model: string | null;
      readonly api_key_id: string | null;
      readonly project_id: string | null;
      readonly batch: boolean | null;
      readonly service_tier: string | null;
      readonly tag: {
        readonly name: string;
        readonly value: string;
      } | null;
    })[];
  })[];
  readonly has_more: boolean;
  readonly next_page: number | null;
};

export type Costs = {
  readonly results: readonly ({
    readonly object: "organization.costs.result";
    readonly amount: {
      readonly value: number;
      readonly currency: "idr";
    };
    readonly credits: string;
    readonly line_item: string | null;
    readonly project_id: string | null;
    readonly tag: {
      readonly name: string;
      readonly value: string;
    } | null;
  })[];
  readonly object: "page";
  readonly data: readonly ({
    readonly object: "bucket";
    readonly start_time: number;
    readonly end_time: number;
    readonly results: readonly ({
      readonly object: "organization.costs.result";
      readonly amount: {
        readonly value: number;
        readonly currency: "idr";
      };
      readonly credits: string;
      readonly line_item: string | null;
      readonly project_id: string | null;
      readonly tag: {
        readonly name: string;
        readonly value: string;
      } | null;
    })[];
  })[];
  readonly has_more: boolean;
  readonly next_page: number | null;
};

export type Model = {
  readonly id: string;
  readonly object?: "model";
  readonly created?: number;
  readonly owned_by?: string;
  readonly shutdown_date?: null;
  readonly type?: "model";
  readonly created_at?: string;
  readonly lifecycle?: "active";
  readonly line?: null;
  readonly deprecated_at?: null;
  readonly retires_at?: null;
  readonly display_name: string;
  readonly max_input_tokens: number;
  readonly max_tokens: number;
  readonly capabilities: {
    readonly web_search: {
      readonly supported: boolean;
    };
    readonly web_fetch: {
      readonly supported: boolean;
    };
    readonly x_search: {
      readonly supported: boolean;
    };
    readonly code_execution: false;
    readonly skills: false;
    readonly batch: {
      readonly supported: boolean;
    };
    readonly citations: {
      readonly supported: boolean;
    };
    readonly context_management: {
      readonly supported: boolean;
    };
    readonly effort: {
      readonly supported: boolean;
    };
    readonly image_input: {
      readonly supported: boolean;
    };
    readonly pdf_input: {
      readonly supported: boolean;
    };
    readonly server_tools: {
      readonly supported: boolean;
    };
    readonly structured_outputs: {
      readonly supported: boolean;
    };
    readonly thinking: {
      readonly supported: boolean;
      readonly types: Readonly<Record<string, unknown>>;
    };
    readonly tool_calling: {
      readonly supported: boolean;
    };
  };
  readonly pricing: {
    readonly unit: "credit";
    readonly per: 1000000;
    readonly input: string;
    readonly output: string;
    readonly cache_read: string;
    readonly cache_write_5m: string;
    readonly cache_write_1h: string;
    readonly audio_input: string | null;
    readonly audio_output: string | null;
    readonly image_output: string | null;
    readonly tiers: readonly ({
      readonly input_over: number;
      readonly input: string;
      readonly output: string;
      readonly cache_read: string;
      readonly cache_write_5m: string;
      readonly cache_write_1h: string;
      readonly audio_input: string | null;
      readonly audio_output: string | null;
      readonly image_output: string | null;
    })[];
    readonly service_tiers: readonly ({
      readonly name: string;
      readonly multiplier: string;
    } | {
      readonly name: string;
      readonly multiplier: null;
      readonly input: string;
      readonly output: string;
      readonly cache_read: string;
      readonly cache_write_5m: string;
      readonly cache_write_1h: string;
      readonly audio_input: string | null;
      readonly audio_output: string | null;
      readonly image_output: string | null;
      readonly tiers: readonly ({
        readonly input_over: number;
        readonly input: string;
        readonly output: string;
        readonly cache_read: string;
        readonly cache_write_5m: string;
        readonly cache_write_1h: string;
        readonly audio_input: string | null;
        readonly audio_output: string | null;
        readonly image_output: string | null;
      })[];
    })[];
    readonly changes: readonly ({
      readonly from: string;
      readonly input: string;
      readonly output: string;
      readonly cache_read: string;
      readonly cache_write_5m: string;
      readonly cache_write_1h: string;
      readonly audio_input: string | null;
      readonly audio_output: string | null;
      readonly image_output: string | null;
      readonly tiers: readonly ({
        readonly input_over: number;
        readonly input: string;
        readonly output: string;
        readonly cache_read: string;
        readonly cache_write_5m: string;
        readonly cache_write_1h: string;
        readonly audio_input: string | null;
        readonly audio_output: string | null;
        readonly image_output: string | null;
      })[];
      readonly service_tiers: readonly ({
        readonly name: string;
        readonly multiplier: string;
      } | {
        readonly name: string;
        readonly multiplier: null;
        readonly input: string;
        readonly output: string;
        readonly cache_read: string;
        readonly cache_write_5m: string;
        readonly cache_write_1h: string;
        readonly audio_input: string | null;
        readonly audio_output: string | null;
        readonly image_output: string | null;
        readonly tiers: readonly ({
          readonly input_over: number;
          readonly input: string;
          readonly output: string;
          readonly cache_read: string;
          readonly cache_write_5m: string;
          readonly cache_write_1h: string;
          readonly audio_input: string | null;
          readonly audio_output: string | null;
          readonly image_output: string | null;
        })[];
      })[];
    })[];
    readonly tools: {
      readonly web_search: string;
      readonly web_fetch: string;
      readonly x_search_post: string;
      readonly x_search_profile: string;
    };
  };
};

export type ModelList = {
  readonly object: "list";
  readonly data: readonly (Model)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type File = {
  readonly id: string;
  readonly type: "file";
  readonly object: "file";
  readonly filename: string;
  readonly mime_type: string;
  readonly size_bytes: number;
  readonly bytes: number;
  readonly purpose: string;
  readonly status: string;
  readonly downloadable: boolean;
  readonly created_at: string | number | null;
  readonly expires_at: string | number | null;
};

export type FileList = {
  readonly object: "list";
  readonly data: readonly (File)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type DeletedFile = {
  readonly id: string;
  readonly deleted: true;
};

export type Upload = {
  readonly file: string;
  readonly purpose?: string;
};

export type MessageBatch = {
  readonly id: string;
  readonly type: "message_batch";
  readonly processing_status: string;
  readonly request_counts: {
    readonly processing: number;
    readonly succeeded: number;
    readonly errored: number;
    readonly canceled: number;
    readonly expired: number;
  };
  readonly created_at: string;
  readonly expires_at: string;
  readonly ended_at: string | null;
  readonly cancel_initiated_at: string | null;
  readonly archived_at: string | null;
  readonly results_url: string | null;
};

export type MessageBatchList = {
  readonly object: "list";
  readonly data: readonly (MessageBatch)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type Batch = {
  readonly id: string;
  readonly object: "batch";
  readonly endpoint: "/v1/chat/completions" | "/v1/responses";
  readonly completion_window: "24h";
  readonly status: "validating" | "in_progress" | "finalizing" | "cancelling" | "completed" | "failed" | "expired" | "cancelled";
  readonly errors: {
    readonly object: "list";
    readonly data: readonly ({
      readonly code: string;
      readonly message: string;
      readonly param: string | null;
      readonly line: number | null;
    })[];
  } | null;
  readonly input_file_id: string;
  readonly output_file_id: string | null;
  readonly error_file_id: string | null;
  readonly created_at: number;
  readonly request_counts: {
    readonly total: number;
    readonly completed: number;
    readonly failed: number;
  };
  readonly metadata: Readonly<Record<string, unknown>> | null;
};

export type BatchList = {
  readonly object: "list";
  readonly data: readonly (Batch)[];
  readonly first_id: string | null;
  readonly last_id: string | null;
  readonly has_more: boolean;
  readonly next_page: string | null;
};

export type NewBatch = {
  readonly input_file_id: string;
  readonly endpoint: "/v1/chat/completions" | "/v1/responses";
  readonly completion_window: "24h";
  readonly metadata?: Readonly<Record<string, unknown>>;
};

export type MessagesRequest = {
  readonly model: string;
  readonly max_tokens?: number;
  readonly system?: string | readonly (Readonly<Record<string, unknown>>)[];
  readonly messages: readonly ({
    readonly role: string;
    readonly content: string | readonly (Readonly<Record<string, unknown>>)[];
  })[];
  readonly tools?: readonly (Readonly<Record<string, unknown>>)[];
  readonly thinking?: Readonly<Record<string, unknown>>;
  readonly stream?: boolean;
};

export type NewMessageBatch = {
  readonly requests: readonly ({
    readonly custom_id: string;
    readonly params: MessagesRequest;
  })[];
};

export type Message = {
  readonly id: string;
  readonly type: "message";
  readonly role: "assistant";
  readonly model: string;
  readonly content: readonly ({
    readonly type: string;
  })[];
  readonly stop_reason: string | null;
  readonly stop_sequence: string | null;
  readonly usage: {
    readonly input_tokens: number;
    readonly output_tokens: number;
  };
};

export type TokenCount = {
  readonly input_tokens: number;
};

export type TokenCountRequest = {
  readonly model: string;
  readonly messages: readonly (Readonly<Record<string, unknown>>)[];
};

export type ChatRequest = {
  readonly model: string;
  readonly messages: readonly ({
    readonly role: string;
  })[];
  readonly web_search_options?: Readonly<Record<string, unknown>>;
  readonly tools?: readonly (Readonly<Record<string, unknown>>)[];
  readonly tool_choice?: string | Readonly<Record<string, unknown>>;
  readonly max_tokens?: number;
  readonly max_completion_tokens?: number;
  readonly n?: number;
  readonly stream?: boolean;
  readonly stream_options?: {
    readonly include_usage?: boolean;
  };
};

export type ChatCompletion = {
  readonly id: string;
  readonly object: "chat.completion";
  readonly model: string;
  readonly choices: readonly ({
    readonly index: number;
    readonly message: Readonly<Record<string, unknown>>;
    readonly finish_reason: string | null;
  })[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly total_tokens: number;
  };
};

export type ResponsesRequest = {
  readonly model: string;
  readonly input: string | readonly (Readonly<Record<string, unknown>>)[];
  readonly tools?: readonly (Readonly<Record<string, unknown>>)[];
  readonly tool_choice?: string | Readonly<Record<string, unknown>>;
  readonly max_tool_calls?: number;
  readonly max_output_tokens?: number;
  readonly stream?: boolean;
};

export type Response = {
  readonly id: string;
  readonly object: "response";
  readonly status: string;
  readonly incomplete_details: {
    readonly reason: string;
  } | null;
  readonly model: string;
  readonly output: readonly ({
    readonly type: string;
  })[];
  readonly usage: {
    readonly input_tokens: number;
    readonly output_tokens: number;
    readonly total_tokens: number;
  } | null;
};

/** By method and path: what an operation takes and answers. */
export interface Operations {
  "POST /v1/messages": { body: MessagesRequest; answer: Message };
  "POST /v1/messages/count_tokens": { body: TokenCountRequest; answer: TokenCount };
  "POST /v1/chat/completions": { body: ChatRequest; answer: ChatCompletion };
  "POST /v1/responses": { body: ResponsesRequest; answer: Response };
  "GET /v1/models": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc" }; answer: ModelList };
  "GET /v1/models/{model}": { answer: Model };
  "GET /v1/key": { answer: Key };
  "POST /v1/files": { answer: File };
  "GET /v1/files": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc"; purpose?: string; ids?: readonly (string)[] }; answer: FileList };
  "GET /v1/files/{id}": { answer: File };
  "DELETE /v1/files/{id}": { answer: DeletedFile };
  "GET /v1/files/{id}/content": { answer: unknown };
  "POST /v1/messages/batches": { body: NewMessageBatch; answer: MessageBatch };
  "GET /v1/messages/batches": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc" }; answer: MessageBatchList };
  "GET /v1/messages/batches/{id}": { answer: MessageBatch };
  "DELETE /v1/messages/batches/{id}": { answer: MessageBatch };
  "POST /v1/messages/batches/{id}/cancel": { answer: MessageBatch };
  "GET /v1/messages/batches/{id}/results": { answer: unknown };
  "POST /v1/batches": { body: NewBatch; answer: Batch };
  "GET /v1/batches": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc" }; answer: BatchList };
  "GET /v1/batches/{id}": { answer: Batch };
  "POST /v1/batches/{id}/cancel": { answer: Batch };
  "GET /v1/organizations/me": { answer: Organization };
  "GET /v1/organizations/{id}/sign_in": { answer: ConsoleSignIn };
  "GET /v1/organizations/api_keys": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc"; status?: "active" | "inactive"; workspace_id?: string; created_by_user_id?: string }; answer: ApiKeyList };
  "POST /v1/organizations/api_keys": { body: NewKey; answer: NewApiKey };
  "GET /v1/organizations/api_keys/{id}": { answer: ApiKey };
  "POST /v1/organizations/api_keys/{id}": { body: KeyChange; answer: ApiKey };
  "GET /v1/organizations/usage_report/messages": { query: { starting_at?: string | number; ending_at?: string | number; bucket_width?: "1d" | "1h"; group_by?: readonly (string)[]; models?: readonly (string)[]; api_key_ids?: readonly (string)[]; user_ids?: readonly (string)[]; project_ids?: readonly (string)[]; service_tiers?: readonly (string)[]; context_window?: readonly (number)[]; batch?: boolean; tags?: Readonly<Record<string, unknown>>; workspace_ids?: readonly (string)[]; limit?: number; page?: number }; answer: MessagesUsageReport };
  "GET /v1/organizations/cost_report": { query: { starting_at?: string | number; ending_at?: string | number; group_by?: readonly (string)[]; models?: readonly (string)[]; api_key_ids?: readonly (string)[]; user_ids?: readonly (string)[]; project_ids?: readonly (string)[]; service_tiers?: readonly (string)[]; context_window?: readonly (number)[]; batch?: boolean; tags?: Readonly<Record<string, unknown>>; limit?: number; page?: number }; answer: CostReport };
  "GET /v1/organization/projects": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc"; include_archived?: boolean }; answer: ProjectList };
  "POST /v1/organization/projects/{project_id}": { body: ProjectChange; answer: Project };
  "GET /v1/organization/projects/{project_id}/api_keys": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc"; owner_project_access?: "active" | "inactive" | "any" }; answer: ProjectApiKeyList };
  "POST /v1/organization/projects/{project_id}/api_keys": { body: NewKey; answer: NewProjectApiKey };
  "GET /v1/organization/projects/{project_id}/api_keys/{id}": { answer: ProjectApiKey };
  "POST /v1/organization/projects/{project_id}/api_keys/{id}": { body: KeyChange; answer: ProjectApiKey };
  "DELETE /v1/organization/projects/{project_id}/api_keys/{id}": { answer: DeletedProjectApiKey };
  "GET /v1/organization/credits": { answer: Credits };
  "GET /v1/organization/configuration": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc" }; answer: ConfigurationList };
  "GET /v1/organization/usage/completions": { query: { start_time?: string | number; end_time?: string | number; bucket_width?: "1d" | "1h"; group_by?: readonly (string)[]; models?: readonly (string)[]; api_key_ids?: readonly (string)[]; user_ids?: readonly (string)[]; project_ids?: readonly (string)[]; service_tiers?: readonly (string)[]; context_window?: readonly (number)[]; batch?: boolean; tags?: Readonly<Record<string, unknown>>; limit?: number; page?: number }; answer: CompletionsUsage };
  "GET /v1/organization/costs": { query: { start_time?: string | number; end_time?: string | number; bucket_width?: "1d"; group_by?: readonly (string)[]; models?: readonly (string)[]; api_key_ids?: readonly (string)[]; user_ids?: readonly (string)[]; project_ids?: readonly (string)[]; service_tiers?: readonly (string)[]; context_window?: readonly (number)[]; batch?: boolean; tags?: Readonly<Record<string, unknown>>; limit?: number; page?: number }; answer: Costs };
  "GET /v1/organization/costs/export": { query: { format: "focus-csv" | "focus-parquet"; month: string }; answer: unknown };
  "GET /v1/organization/users": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc" }; answer: UserList };
  "GET /v1/organization/users/{id}": { answer: User };
  "GET /v1/organization/requests": { query: { limit?: number; after?: string; after_id?: string; before_id?: string; page?: string; order?: "asc" | "desc"; from?: number; to?: number; api_key_id?: string; project_id?: string; model?: string; status?: number; code?: string }; answer: RequestList };
  "GET /v1/organization/requests/{id}": { answer: Request };
  "GET /openapi.json": { answer: {
      readonly openapi: string;
    } };
}
