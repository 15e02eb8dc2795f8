from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Envelope(_message.Message):
    __slots__ = ("run_event", "run_request", "run_input", "run_window", "cancel_request", "cancel_response", "ping", "pong", "provider_status", "register_request", "register_response", "node_config_refresh_request", "node_config_refresh_response", "node_command_request", "node_command_response", "node_draining")
    RUN_EVENT_FIELD_NUMBER: _ClassVar[int]
    RUN_REQUEST_FIELD_NUMBER: _ClassVar[int]
    RUN_INPUT_FIELD_NUMBER: _ClassVar[int]
    RUN_WINDOW_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CANCEL_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_STATUS_FIELD_NUMBER: _ClassVar[int]
    REGISTER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    REGISTER_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    NODE_CONFIG_REFRESH_REQUEST_FIELD_NUMBER: _ClassVar[int]
    NODE_CONFIG_REFRESH_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    NODE_COMMAND_REQUEST_FIELD_NUMBER: _ClassVar[int]
    NODE_COMMAND_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    NODE_DRAINING_FIELD_NUMBER: _ClassVar[int]
    run_event: RunEvent
    run_request: RunRequest
    run_input: RunInput
    run_window: RunWindow
    cancel_request: CancelRequest
    cancel_response: CancelResponse
    ping: Ping
    pong: Pong
    provider_status: ProviderStatus
    register_request: RegisterRequest
    register_response: RegisterResponse
    node_config_refresh_request: NodeConfigRefreshRequest
    node_config_refresh_response: NodeConfigRefreshResponse
    node_command_request: NodeCommandRequest
    node_command_response: NodeCommandResponse
    node_draining: NodeDraining
    def __init__(self, run_event: _Optional[_Union[RunEvent, _Mapping]] = ..., run_request: _Optional[_Union[RunRequest, _Mapping]] = ..., run_input: _Optional[_Union[RunInput, _Mapping]] = ..., run_window: _Optional[_Union[RunWindow, _Mapping]] = ..., cancel_request: _Optional[_Union[CancelRequest, _Mapping]] = ..., cancel_response: _Optional[_Union[CancelResponse, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., provider_status: _Optional[_Union[ProviderStatus, _Mapping]] = ..., register_request: _Optional[_Union[RegisterRequest, _Mapping]] = ..., register_response: _Optional[_Union[RegisterResponse, _Mapping]] = ..., node_config_refresh_request: _Optional[_Union[NodeConfigRefreshRequest, _Mapping]] = ..., node_config_refresh_response: _Optional[_Union[NodeConfigRefreshResponse, _Mapping]] = ..., node_command_request: _Optional[_Union[NodeCommandRequest, _Mapping]] = ..., node_command_response: _Optional[_Union[NodeCommandResponse, _Mapping]] = ..., node_draining: _Optional[_Union[NodeDraining, _Mapping]] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("token", "protocol_version", "agent_version", "instance_id", "hostname", "platform", "adapter_types")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_TYPES_FIELD_NUMBER: _ClassVar[int]
    token: str
    protocol_version: int
    agent_version: str
    instance_id: str
    hostname: str
    platform: str
    adapter_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, token: _Optional[str] = ..., protocol_version: _Optional[int] = ..., agent_version: _Optional[str] = ..., instance_id: _Optional[str] = ..., hostname: _Optional[str] = ..., platform: _Optional[str] = ..., adapter_types: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("accepted", "reason", "message", "node_id", "alias", "heartbeat_ms", "max_frame_bytes", "config")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    reason: str
    message: str
    node_id: str
    alias: str
    heartbeat_ms: int
    max_frame_bytes: int
    config: NodeConfigPayload
    def __init__(self, accepted: _Optional[bool] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., node_id: _Optional[str] = ..., alias: _Optional[str] = ..., heartbeat_ms: _Optional[int] = ..., max_frame_bytes: _Optional[int] = ..., config: _Optional[_Union[NodeConfigPayload, _Mapping]] = ...) -> None: ...

class NodeConfigPayload(_message.Message):
    __slots__ = ("revision", "adapters", "providers", "runtime")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    revision: str
    adapters: _containers.RepeatedCompositeFieldContainer[AdapterConfig]
    providers: _containers.RepeatedCompositeFieldContainer[ProviderConfig]
    runtime: NodeRuntimeConfig
    def __init__(self, revision: _Optional[str] = ..., adapters: _Optional[_Iterable[_Union[AdapterConfig, _Mapping]]] = ..., providers: _Optional[_Iterable[_Union[ProviderConfig, _Mapping]]] = ..., runtime: _Optional[_Union[NodeRuntimeConfig, _Mapping]] = ...) -> None: ...

class AdapterConfig(_message.Message):
    __slots__ = ("name", "type", "enabled", "openai_compat", "ollama", "cli", "extension")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    OPENAI_COMPAT_FIELD_NUMBER: _ClassVar[int]
    OLLAMA_FIELD_NUMBER: _ClassVar[int]
    CLI_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    enabled: bool
    openai_compat: OpenAICompatAdapterConfig
    ollama: OllamaAdapterConfig
    cli: CliAdapterConfig
    extension: bytes
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., enabled: _Optional[bool] = ..., openai_compat: _Optional[_Union[OpenAICompatAdapterConfig, _Mapping]] = ..., ollama: _Optional[_Union[OllamaAdapterConfig, _Mapping]] = ..., cli: _Optional[_Union[CliAdapterConfig, _Mapping]] = ..., extension: _Optional[bytes] = ...) -> None: ...

class OpenAICompatAdapterConfig(_message.Message):
    __slots__ = ("provider", "base_url", "headers", "request_timeout_ms", "connect_timeout_ms", "first_byte_timeout_ms", "gap_timeout_ms", "max_connections", "tools", "stream_upstream", "ca_file", "messages")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    BASE_URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_BYTE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    GAP_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    STREAM_UPSTREAM_FIELD_NUMBER: _ClassVar[int]
    CA_FILE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    provider: str
    base_url: str
    headers: _containers.ScalarMap[str, str]
    request_timeout_ms: int
    connect_timeout_ms: int
    first_byte_timeout_ms: int
    gap_timeout_ms: int
    max_connections: int
    tools: str
    stream_upstream: str
    ca_file: str
    messages: str
    def __init__(self, provider: _Optional[str] = ..., base_url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., request_timeout_ms: _Optional[int] = ..., connect_timeout_ms: _Optional[int] = ..., first_byte_timeout_ms: _Optional[int] = ..., gap_timeout_ms: _Optional[int] = ..., max_connections: _Optional[int] = ..., tools: _Optional[str] = ..., stream_upstream: _Optional[str] = ..., ca_file: _Optional[str] = ..., messages: _Optional[str] = ...) -> None: ...

class OllamaAdapterConfig(_message.Message):
    __slots__ = ("base_url", "headers", "request_timeout_ms", "connect_timeout_ms", "first_byte_timeout_ms", "gap_timeout_ms", "max_connections", "context_size", "keep_alive", "ca_file", "context_sizes")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ContextSizesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BASE_URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECT_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_BYTE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    GAP_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_SIZE_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_FIELD_NUMBER: _ClassVar[int]
    CA_FILE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_SIZES_FIELD_NUMBER: _ClassVar[int]
    base_url: str
    headers: _containers.ScalarMap[str, str]
    request_timeout_ms: int
    connect_timeout_ms: int
    first_byte_timeout_ms: int
    gap_timeout_ms: int
    max_connections: int
    context_size: int
    keep_alive: str
    ca_file: str
    context_sizes: _containers.ScalarMap[str, int]
    def __init__(self, base_url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., request_timeout_ms: _Optional[int] = ..., connect_timeout_ms: _Optional[int] = ..., first_byte_timeout_ms: _Optional[int] = ..., gap_timeout_ms: _Optional[int] = ..., max_connections: _Optional[int] = ..., context_size: _Optional[int] = ..., keep_alive: _Optional[str] = ..., ca_file: _Optional[str] = ..., context_sizes: _Optional[_Mapping[str, int]] = ...) -> None: ...

class CliAdapterConfig(_message.Message):
    __slots__ = ("command", "args", "env", "mode", "resume_args", "output_format", "request_timeout_ms", "grace_ms", "fields", "prompt")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    RESUME_ARGS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    GRACE_MS_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    command: str
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    mode: str
    resume_args: _containers.RepeatedScalarFieldContainer[str]
    output_format: str
    request_timeout_ms: int
    grace_ms: int
    fields: _containers.ScalarMap[str, str]
    prompt: str
    def __init__(self, command: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., mode: _Optional[str] = ..., resume_args: _Optional[_Iterable[str]] = ..., output_format: _Optional[str] = ..., request_timeout_ms: _Optional[int] = ..., grace_ms: _Optional[int] = ..., fields: _Optional[_Mapping[str, str]] = ..., prompt: _Optional[str] = ...) -> None: ...

class ProviderConfig(_message.Message):
    __slots__ = ("id", "adapter", "provider", "models", "health", "lifecycle", "type")
    ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    id: str
    adapter: str
    provider: str
    models: _containers.RepeatedScalarFieldContainer[str]
    health: ProviderHealthConfig
    lifecycle: ProviderLifecycleConfig
    type: str
    def __init__(self, id: _Optional[str] = ..., adapter: _Optional[str] = ..., provider: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., health: _Optional[_Union[ProviderHealthConfig, _Mapping]] = ..., lifecycle: _Optional[_Union[ProviderLifecycleConfig, _Mapping]] = ..., type: _Optional[str] = ...) -> None: ...

class ProviderHealthConfig(_message.Message):
    __slots__ = ("interval_ms", "path", "timeout_ms")
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    path: str
    timeout_ms: int
    def __init__(self, interval_ms: _Optional[int] = ..., path: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class ProviderLifecycleConfig(_message.Message):
    __slots__ = ("managed",)
    MANAGED_FIELD_NUMBER: _ClassVar[int]
    managed: bool
    def __init__(self, managed: _Optional[bool] = ...) -> None: ...

class NodeRuntimeConfig(_message.Message):
    __slots__ = ("concurrency",)
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    concurrency: int
    def __init__(self, concurrency: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class HttpRequest(_message.Message):
    __slots__ = ("method", "path", "headers")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    method: str
    path: str
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, method: _Optional[str] = ..., path: _Optional[str] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class HttpResponse(_message.Message):
    __slots__ = ("status", "headers")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    status: int
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, status: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("run_id", "adapter", "target", "provider_id", "mode", "input", "input_size", "http", "secret_headers", "thinking", "metadata", "deadline_ms", "window_bytes", "workspace", "session_id")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MODE_UNSPECIFIED: _ClassVar[RunRequest.Mode]
        NORMALIZED: _ClassVar[RunRequest.Mode]
        PASSTHROUGH: _ClassVar[RunRequest.Mode]
    MODE_UNSPECIFIED: RunRequest.Mode
    NORMALIZED: RunRequest.Mode
    PASSTHROUGH: RunRequest.Mode
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_SIZE_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    SECRET_HEADERS_FIELD_NUMBER: _ClassVar[int]
    THINKING_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    adapter: str
    target: str
    provider_id: str
    mode: RunRequest.Mode
    input: bytes
    input_size: int
    http: HttpRequest
    secret_headers: _containers.RepeatedCompositeFieldContainer[Header]
    thinking: Thinking
    metadata: _containers.ScalarMap[str, str]
    deadline_ms: int
    window_bytes: int
    workspace: str
    session_id: str
    def __init__(self, run_id: _Optional[str] = ..., adapter: _Optional[str] = ..., target: _Optional[str] = ..., provider_id: _Optional[str] = ..., mode: _Optional[_Union[RunRequest.Mode, str]] = ..., input: _Optional[bytes] = ..., input_size: _Optional[int] = ..., http: _Optional[_Union[HttpRequest, _Mapping]] = ..., secret_headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., thinking: _Optional[_Union[Thinking, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., deadline_ms: _Optional[int] = ..., window_bytes: _Optional[int] = ..., workspace: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class Thinking(_message.Message):
    __slots__ = ("mode", "budget")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSET: _ClassVar[Thinking.Mode]
        OFF: _ClassVar[Thinking.Mode]
        ON: _ClassVar[Thinking.Mode]
    UNSET: Thinking.Mode
    OFF: Thinking.Mode
    ON: Thinking.Mode
    MODE_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    mode: Thinking.Mode
    budget: int
    def __init__(self, mode: _Optional[_Union[Thinking.Mode, str]] = ..., budget: _Optional[int] = ...) -> None: ...

class RunInput(_message.Message):
    __slots__ = ("run_id", "data")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    data: bytes
    def __init__(self, run_id: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class RunWindow(_message.Message):
    __slots__ = ("run_id", "add_bytes")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ADD_BYTES_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    add_bytes: int
    def __init__(self, run_id: _Optional[str] = ..., add_bytes: _Optional[int] = ...) -> None: ...

class RunEvent(_message.Message):
    __slots__ = ("run_id", "body", "seq", "type", "text", "reasoning", "http", "finish_reason", "usage", "error", "metadata")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[RunEvent.Type]
        START: _ClassVar[RunEvent.Type]
        DELTA: _ClassVar[RunEvent.Type]
        COMPLETE: _ClassVar[RunEvent.Type]
        ERROR: _ClassVar[RunEvent.Type]
        CANCELLED: _ClassVar[RunEvent.Type]
    TYPE_UNSPECIFIED: RunEvent.Type
    START: RunEvent.Type
    DELTA: RunEvent.Type
    COMPLETE: RunEvent.Type
    ERROR: RunEvent.Type
    CANCELLED: RunEvent.Type
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    body: bytes
    seq: int
    type: RunEvent.Type
    text: str
    reasoning: str
    http: HttpResponse
    finish_reason: str
    usage: Usage
    error: RunError
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, run_id: _Optional[str] = ..., body: _Optional[bytes] = ..., seq: _Optional[int] = ..., type: _Optional[_Union[RunEvent.Type, str]] = ..., text: _Optional[str] = ..., reasoning: _Optional[str] = ..., http: _Optional[_Union[HttpResponse, _Mapping]] = ..., finish_reason: _Optional[str] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., error: _Optional[_Union[RunError, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASONING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    reasoning_tokens: int
    def __init__(self, input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., cached_input_tokens: _Optional[int] = ..., reasoning_tokens: _Optional[int] = ...) -> None: ...

class RunError(_message.Message):
    __slots__ = ("code", "message", "http_status", "type", "param", "retryable", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    http_status: int
    type: str
    param: str
    retryable: bool
    retry_after_ms: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., http_status: _Optional[int] = ..., type: _Optional[str] = ..., param: _Optional[str] = ..., retryable: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("request_id", "action", "run_id", "adapter", "session_id")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTION_UNSPECIFIED: _ClassVar[CancelRequest.Action]
        CANCEL_RUN: _ClassVar[CancelRequest.Action]
        TERMINATE_SESSION: _ClassVar[CancelRequest.Action]
    ACTION_UNSPECIFIED: CancelRequest.Action
    CANCEL_RUN: CancelRequest.Action
    TERMINATE_SESSION: CancelRequest.Action
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    action: CancelRequest.Action
    run_id: str
    adapter: str
    session_id: str
    def __init__(self, request_id: _Optional[str] = ..., action: _Optional[_Union[CancelRequest.Action, str]] = ..., run_id: _Optional[str] = ..., adapter: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("request_id", "found", "message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    found: bool
    message: str
    def __init__(self, request_id: _Optional[str] = ..., found: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class NodeCommandRequest(_message.Message):
    __slots__ = ("request_id", "type")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[NodeCommandRequest.Type]
        USAGE: _ClassVar[NodeCommandRequest.Type]
        CAPABILITIES: _ClassVar[NodeCommandRequest.Type]
        SESSIONS: _ClassVar[NodeCommandRequest.Type]
        TRANSPORT: _ClassVar[NodeCommandRequest.Type]
        PROVIDERS: _ClassVar[NodeCommandRequest.Type]
    TYPE_UNSPECIFIED: NodeCommandRequest.Type
    USAGE: NodeCommandRequest.Type
    CAPABILITIES: NodeCommandRequest.Type
    SESSIONS: NodeCommandRequest.Type
    TRANSPORT: NodeCommandRequest.Type
    PROVIDERS: NodeCommandRequest.Type
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    type: NodeCommandRequest.Type
    def __init__(self, request_id: _Optional[str] = ..., type: _Optional[_Union[NodeCommandRequest.Type, str]] = ...) -> None: ...

class NodeCommandResponse(_message.Message):
    __slots__ = ("request_id", "error", "truncated", "usage", "capabilities", "sessions", "transport", "providers")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    error: str
    truncated: bool
    usage: UsageReport
    capabilities: CapabilitiesReport
    sessions: SessionsReport
    transport: TransportReport
    providers: ProvidersReport
    def __init__(self, request_id: _Optional[str] = ..., error: _Optional[str] = ..., truncated: _Optional[bool] = ..., usage: _Optional[_Union[UsageReport, _Mapping]] = ..., capabilities: _Optional[_Union[CapabilitiesReport, _Mapping]] = ..., sessions: _Optional[_Union[SessionsReport, _Mapping]] = ..., transport: _Optional[_Union[TransportReport, _Mapping]] = ..., providers: _Optional[_Union[ProvidersReport, _Mapping]] = ...) -> None: ...

class UsageReport(_message.Message):
    __slots__ = ("uptime_ms", "runs_total", "runs_active", "runs_failed", "input_tokens", "output_tokens", "resident_bytes")
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    RUNS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    RUNS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FAILED_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    uptime_ms: int
    runs_total: int
    runs_active: int
    runs_failed: int
    input_tokens: int
    output_tokens: int
    resident_bytes: int
    def __init__(self, uptime_ms: _Optional[int] = ..., runs_total: _Optional[int] = ..., runs_active: _Optional[int] = ..., runs_failed: _Optional[int] = ..., input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., resident_bytes: _Optional[int] = ...) -> None: ...

class CapabilitiesReport(_message.Message):
    __slots__ = ("agent_version", "protocol_version", "adapters", "adapter_types")
    class Adapter(_message.Message):
        __slots__ = ("name", "type", "title", "modes", "endpoints", "sessions", "embeddings")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        TITLE_FIELD_NUMBER: _ClassVar[int]
        MODES_FIELD_NUMBER: _ClassVar[int]
        ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
        SESSIONS_FIELD_NUMBER: _ClassVar[int]
        EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
        name: str
        type: str
        title: str
        modes: _containers.RepeatedScalarFieldContainer[str]
        endpoints: _containers.RepeatedScalarFieldContainer[str]
        sessions: bool
        embeddings: bool
        def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., title: _Optional[str] = ..., modes: _Optional[_Iterable[str]] = ..., endpoints: _Optional[_Iterable[str]] = ..., sessions: _Optional[bool] = ..., embeddings: _Optional[bool] = ...) -> None: ...
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_TYPES_FIELD_NUMBER: _ClassVar[int]
    agent_version: str
    protocol_version: int
    adapters: _containers.RepeatedCompositeFieldContainer[CapabilitiesReport.Adapter]
    adapter_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, agent_version: _Optional[str] = ..., protocol_version: _Optional[int] = ..., adapters: _Optional[_Iterable[_Union[CapabilitiesReport.Adapter, _Mapping]]] = ..., adapter_types: _Optional[_Iterable[str]] = ...) -> None: ...

class SessionsReport(_message.Message):
    __slots__ = ("sessions",)
    class Session(_message.Message):
        __slots__ = ("session_id", "adapter", "state", "workspace", "created_ms", "last_used_ms")
        SESSION_ID_FIELD_NUMBER: _ClassVar[int]
        ADAPTER_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        WORKSPACE_FIELD_NUMBER: _ClassVar[int]
        CREATED_MS_FIELD_NUMBER: _ClassVar[int]
        LAST_USED_MS_FIELD_NUMBER: _ClassVar[int]
        session_id: str
        adapter: str
        state: str
        workspace: str
        created_ms: int
        last_used_ms: int
        def __init__(self, session_id: _Optional[str] = ..., adapter: _Optional[str] = ..., state: _Optional[str] = ..., workspace: _Optional[str] = ..., created_ms: _Optional[int] = ..., last_used_ms: _Optional[int] = ...) -> None: ...
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[SessionsReport.Session]
    def __init__(self, sessions: _Optional[_Iterable[_Union[SessionsReport.Session, _Mapping]]] = ...) -> None: ...

class TransportReport(_message.Message):
    __slots__ = ("connected_ms", "bytes_in", "bytes_out", "frames_in", "frames_out", "reconnects", "last_loss")
    CONNECTED_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    FRAMES_IN_FIELD_NUMBER: _ClassVar[int]
    FRAMES_OUT_FIELD_NUMBER: _ClassVar[int]
    RECONNECTS_FIELD_NUMBER: _ClassVar[int]
    LAST_LOSS_FIELD_NUMBER: _ClassVar[int]
    connected_ms: int
    bytes_in: int
    bytes_out: int
    frames_in: int
    frames_out: int
    reconnects: int
    last_loss: str
    def __init__(self, connected_ms: _Optional[int] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., frames_in: _Optional[int] = ..., frames_out: _Optional[int] = ..., reconnects: _Optional[int] = ..., last_loss: _Optional[str] = ...) -> None: ...

class ProvidersReport(_message.Message):
    __slots__ = ("providers",)
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    providers: _containers.RepeatedCompositeFieldContainer[ProviderSnapshot]
    def __init__(self, providers: _Optional[_Iterable[_Union[ProviderSnapshot, _Mapping]]] = ...) -> None: ...

class ProviderSnapshot(_message.Message):
    __slots__ = ("node_id", "provider_id", "type", "category", "status", "health", "models", "capacity", "in_flight", "queued", "long_context_capacity", "long_in_flight", "long_queued", "priority")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    LONG_CONTEXT_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    LONG_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    LONG_QUEUED_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    provider_id: str
    type: str
    category: str
    status: str
    health: str
    models: _containers.RepeatedScalarFieldContainer[str]
    capacity: int
    in_flight: int
    queued: int
    long_context_capacity: int
    long_in_flight: int
    long_queued: int
    priority: int
    def __init__(self, node_id: _Optional[str] = ..., provider_id: _Optional[str] = ..., type: _Optional[str] = ..., category: _Optional[str] = ..., status: _Optional[str] = ..., health: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ..., capacity: _Optional[int] = ..., in_flight: _Optional[int] = ..., queued: _Optional[int] = ..., long_context_capacity: _Optional[int] = ..., long_in_flight: _Optional[int] = ..., long_queued: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class NodeConfigRefreshRequest(_message.Message):
    __slots__ = ("request_id", "payload")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    payload: NodeConfigPayload
    def __init__(self, request_id: _Optional[str] = ..., payload: _Optional[_Union[NodeConfigPayload, _Mapping]] = ...) -> None: ...

class NodeConfigRefreshResponse(_message.Message):
    __slots__ = ("request_id", "revision", "status", "message", "changed_adapters", "failed_adapters")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[NodeConfigRefreshResponse.Status]
        APPLIED: _ClassVar[NodeConfigRefreshResponse.Status]
        RESTART_REQUIRED: _ClassVar[NodeConfigRefreshResponse.Status]
        FAILED: _ClassVar[NodeConfigRefreshResponse.Status]
    STATUS_UNSPECIFIED: NodeConfigRefreshResponse.Status
    APPLIED: NodeConfigRefreshResponse.Status
    RESTART_REQUIRED: NodeConfigRefreshResponse.Status
    FAILED: NodeConfigRefreshResponse.Status
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    FAILED_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    revision: str
    status: NodeConfigRefreshResponse.Status
    message: str
    changed_adapters: _containers.RepeatedScalarFieldContainer[str]
    failed_adapters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., revision: _Optional[str] = ..., status: _Optional[_Union[NodeConfigRefreshResponse.Status, str]] = ..., message: _Optional[str] = ..., changed_adapters: _Optional[_Iterable[str]] = ..., failed_adapters: _Optional[_Iterable[str]] = ...) -> None: ...

class ProviderStatus(_message.Message):
    __slots__ = ("provider_id", "health", "message", "models")
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    provider_id: str
    health: str
    message: str
    models: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, provider_id: _Optional[str] = ..., health: _Optional[str] = ..., message: _Optional[str] = ..., models: _Optional[_Iterable[str]] = ...) -> None: ...

class NodeDraining(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Ping(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    def __init__(self, nonce: _Optional[int] = ...) -> None: ...
