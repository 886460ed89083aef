"""Whose fault it is, as data: words first, then phrases, then statuses (as the providers say it, November 2026).

A word is an error's `code`, `type` or anything else that a machine wrote (Gemini's reason, OpenRouter's `error_type`,
Anthropic's `error_code`, Bedrock's header). Words decide ahead of statuses, because one status hides opposite cases: a 429 is
"wait two seconds" or "no money until next month". Words that only name a family (`invalid_request_error` comes with wrong
keys, too) decide last, where there is no status. Phrases are for providers that say it in prose only.
"""

import re

from attrs import frozen

from trioproxy.errors import Blame, FaultKind

HOUR = 3600.0
TO_MIDNIGHT = -1.0  # a park that ends at the next UTC midnight


@frozen
class Rule:
    """What follows from one signal. `park` is seconds or `TO_MIDNIGHT`."""

    kind: FaultKind
    blame: Blame
    retry: bool = True
    counts: bool = False
    park: float | None = None


def _client(kind: FaultKind) -> Rule:
    return Rule(kind, Blame.CLIENT, retry=False)


BAD_REQUEST = _client(FaultKind.BAD_REQUEST)
CONTEXT = _client(FaultKind.CONTEXT_LENGTH)
FILTERED = _client(FaultKind.CONTENT_FILTER)
TOO_LARGE = _client(FaultKind.TOO_LARGE)
PARAMETER = Rule(FaultKind.PARAMETER, Blame.ADAPTER)
UNKNOWN_MODEL = Rule(FaultKind.MODEL_NOT_FOUND, Blame.KEY)
# One strike: a key that was refused is refused again. Re-probed after five minutes, in case it was the provider's slip.
AUTH = Rule(FaultKind.AUTH, Blame.KEY, park=300.0)
# Money does not come back within a request's patience.
BILLING = Rule(FaultKind.BILLING, Blame.KEY, park=HOUR)
LOW_CREDIT = Rule(FaultKind.BILLING, Blame.KEY, counts=True, park=HOUR)
FORBIDDEN = Rule(FaultKind.FORBIDDEN, Blame.KEY, park=600.0)
DAY_IS_OVER = Rule(FaultKind.RATE_LIMITED, Blame.KEY, park=TO_MIDNIGHT)
RATE = Rule(FaultKind.RATE_LIMITED, Blame.RATE)
RAMP = Rule(FaultKind.RAMP, Blame.RATE)
OVERLOADED = Rule(FaultKind.OVERLOADED, Blame.PROVIDER, counts=True)
SERVER = Rule(FaultKind.SERVER_ERROR, Blame.PROVIDER, counts=True)
PASSING = Rule(FaultKind.SERVER_ERROR, Blame.PROVIDER)
PAGE = Rule(FaultKind.NOT_AN_ANSWER, Blame.PROVIDER, counts=True)

_BY_RULE = (
    (
        BILLING,
        """insufficient_quota credit_balance_exhausted organization_spend_limit_exceeded project_spend_limit_exceeded
        organization_usage_limit_exceeded billing_hard_limit_reached billing_not_active billing_error payment_required
        linked_organization_billing_unavailable linked_organization_spend_limit_reached enforced_spend_limit_reached
        contract_spend_limit_reached organization_on_hold insufficient_balance insufficient_user_quota
        exceeded_current_quota_error arrearage""",
    ),
    (RAMP, "slow_down ramp_limit_exceeded"),
    (
        AUTH,
        """invalid_api_key incorrect_api_key api_key_invalid account_deactivated authentication_error authentication
        unauthenticated invalid_authentication_error invalidapikey unrecognizedclientexception""",
    ),
    (
        FORBIDDEN,
        """unsupported_country_region_territory permission_denied permission_error accessdeniedexception
        cmek_key_disabled organization_type_not_supported ip_not_authorized failed_precondition""",
    ),
    (
        CONTEXT,
        """context_length_exceeded max_tokens_exceeded token_limit_exceeded model_context_window_exceeded
        context_window_exceeded""",
    ),
    (
        FILTERED,
        """content_filter content_policy_violation responsibleaipolicyviolation refusal invalid_prompt bio_policy
        misalignment_policy_violation data_inspection_failed datainspectionfailed moderation""",
    ),
    (TOO_LARGE, "request_too_large payload_too_large request_body_too_large_after_decoding"),
    (PARAMETER, "unsupported_parameter unknown_parameter"),
    (
        UNKNOWN_MODEL,
        "model_not_found deploymentnotfound not_found_error not_found notfounderror resourcenotfoundexception",
    ),
    (
        OVERLOADED,
        """server_is_overloaded overloaded_error over_capacity provider_overloaded engine_overloaded_error 3505
        insufficient_system_resource""",
    ),
    (
        RATE,
        """rate_limit_exceeded rate_limit_error too_many_requests throttlingexception resource_exhausted
        ratelimitexceeded rate_limit_reached_error modelnotreadyexception servicequotaexceededexception
        capacity_exceeded requests tokens 1300 toomanyrequests""",
    ),
    (
        BAD_REQUEST,
        """invalid_value unsupported_value string_above_max_length string_too_long unprocessable invalid_image
        validationexception""",
    ),
    (SERVER, "provider_unavailable internalserverexception modelerrorexception modelstreamerrorexception"),
)

# Later rows of `_BY_RULE` yield to earlier ones: an error with two words is judged by the weightier.
WORDS = {word: (rank, rule) for rank, (rule, words) in enumerate(_BY_RULE) for word in words.split()}

# Words that name a family. They decide only where no status does.
FAMILIES = {
    word: rule
    for rule, words in (
        (BAD_REQUEST, "invalid_request_error invalid_request badrequesterror invalid_argument bad_request"),
        (OVERLOADED, "service_unavailable_error unavailable serviceunavailableexception"),
    )
    for word in words.split()
}

# What providers say in prose only. (statuses it may come with, or none for any; pattern; rule)
PHRASES = tuple(
    (frozenset(statuses), re.compile(pattern, re.IGNORECASE), rule)
    for statuses, pattern, rule in (
        ((), r"\bthrottling\.", RATE),
        ((), r"credit balance is too low", LOW_CREDIT),
        ((), r"reached your specified (?:workspace )?api usage limits|regain access on", BILLING),
        ((), r"free-models-per-day|\bper[- ]day\b.*\blimit|\bdaily limit", DAY_IS_OVER),
        ((0, 400, 413, 422), r"maximum context length|context (?:length|window) (?:is )?exceeded", CONTEXT),
        ((0, 400, 413, 422), r"prompt is too long|reduce the length of the messages", CONTEXT),
        (
            (0, 400, 422),
            r"deprecated for this model|unsupported parameter|unknown (?:field|parameter)",
            PARAMETER,
        ),
        ((0, 400, 422), r"unrecognized request argument|extra (?:inputs|fields)(?: are)? not permitted", PARAMETER),
        ((0, 400), r"api key not valid", AUTH),
        ((0, 503), r"\boverloaded\b", OVERLOADED),
    )
)

STATUSES = {
    401: AUTH,
    402: BILLING,
    403: FORBIDDEN,
    404: UNKNOWN_MODEL,
    408: SERVER,
    409: PASSING,
    410: UNKNOWN_MODEL,
    413: TOO_LARGE,
    424: SERVER,
    425: PASSING,
    429: RATE,
    451: FORBIDDEN,
    498: RATE,  # Groq: the flex tier is full
    499: PASSING,  # the provider's own gateway hung up
    529: OVERLOADED,
}


def rule_for_status(status: int) -> Rule:
    """By status alone: other 4xx are the client's, and whatever is no answer at all is the provider's."""
    return STATUSES.get(status) or (BAD_REQUEST if 400 <= status < 500 else SERVER)
