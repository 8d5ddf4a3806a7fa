// Schemas' costs, keyword by keyword: a schema of twice the length takes about twice the time, or is refused in no more, and
// compilation is given up soon after nobody waits for it.
#include "base/error.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/grammar.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/json_schema.h"
#include <algorithm>
#include <ctime>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#ifdef _WIN32
#include "base/windows_handle.h"
#endif

using namespace tq;
using namespace tq::grammar;

using Json = nlohmann::ordered_json;

namespace {

struct Kind {
    std::string name;
    std::function<Json(size_t)> make; // a schema whose length is proportional to the number
    size_t least = 125;               // the smallest number that is tried
};

constexpr size_t repeats = 4000; // from here on what the schema repeats is too much

Json list(size_t n, const std::function<Json(size_t)>& item) {
    Json all = Json::array();
    for (size_t i = 0; i < n; ++i) all.push_back(item(i));
    return all;
}

Json map(size_t n, const std::function<Json(size_t)>& item, const std::string& prefix = "k") {
    Json all = Json::object();
    auto& members = all.get_ref<Json::object_t&>();
    for (size_t i = 0; i < n; ++i) members.emplace_back(prefix + std::to_string(i), item(i));
    return all;
}

std::string key(size_t i) { return "k" + std::to_string(i); }

Json both(const Json& a, const Json& b) { return {{"allOf", {a, b}}}; }

Json with(Json schema, const char* keyword, Json value) {
    schema[keyword] = std::move(value);
    return schema;
}

std::string repeated(size_t n, const std::string& text) {
    std::string all;
    for (size_t i = 0; i < n; ++i) all += text;
    return all;
}

// Texts and a number.
Json numbered(size_t n) {
    Json all = list(n, [](size_t i) { return Json(key(i)); });
    all.push_back(1);
    return all;
}

// `schema` within `levels` others.
Json nested(size_t levels, Json schema, const std::function<Json(Json)>& around) {
    for (size_t i = 0; i < levels; ++i) schema = around(std::move(schema));
    return schema;
}

const auto number = [](size_t) { return Json{{"type", "integer"}}; };
const auto text = [](size_t i) { return Json(key(i)); };

const std::vector<Kind> kinds = {
    {"allOf of properties",
     [](size_t n) {
         return Json{{"allOf", list(n, [](size_t i) { return Json{{"properties", {{key(i), {{"type", "string"}}}}}}; })}};
     }},
    {"allOf of one property",
     [](size_t n) {
         return Json{{"allOf", list(n, [](size_t i) { return Json{{"properties", {{"a", {{"minLength", i}}}}}}; })}};
     }},
    {"allOf of items",
     [](size_t n) {
         return Json{{"allOf", list(n, [](size_t i) { return Json{{"items", {{"minimum", i}}}}; })}};
     }},
    {"allOf of required",
     [](size_t n) {
         return Json{{"allOf", list(n, [](size_t i) { return Json{{"required", {key(i)}}}; })}};
     }},
    {"allOf of enums",
     [](size_t n) {
         return Json{{"allOf", list(n, [](size_t) { return Json{{"enum", list(20, text)}}; })}};
     }},
    {"allOf of patterns",
     [](size_t n) {
         return Json{{"allOf", list(n, [](size_t i) { return Json{{"pattern", key(i)}}; })}};
     }},
    {"allOf of other keywords",
     [](size_t n) {
         return Json{{"allOf", list(n, [](size_t i) { return Json{{key(i), 1}}; })}};
     }},
    {"properties",
     [](size_t n) {
         return Json{{"properties", map(std::min<size_t>(n, 4000), number)}, {"title", repeated(n, "t")}};
     }},
    {"two lists of properties",
     [](size_t n) {
         return both({{"properties", map(n, number)}}, {{"properties", map(n, number, "l")}});
     }},
    {"two enums",
     [](size_t n) {
         return both({{"enum", list(n, text)}}, with({{"enum", list(n + 1, text)}}, "type", "string"));
     }},
    {"two enums of numbers",
     [](size_t n) {
         return both({{"enum", list(n, [](size_t i) { return Json(i); })}},
                     {{"enum", list(n + 1, [](size_t i) { return Json(0.5 * double(i)); })}});
     }},
    {"two lists of required",
     [](size_t n) {
         return both({{"required", list(n, text)}}, {{"required", list(n + 1, text)}});
     }},
    {"types",
     [](size_t n) {
         return Json{{"type", list(n, [](size_t) { return Json("string"); })}, {"enum", list(n, text)}};
     }},
    {"two lists of types",
     [](size_t n) {
         const Json types = {{"type", list(n, [](size_t) { return Json("string"); })}};
         return both(types, with(types, "type", list(n + 1, [](size_t) { return Json("string"); })));
     }},
    {"properties and required",
     [](size_t n) {
         return Json{{"properties", map(n, number)}, {"required", list(n, text)}};
     }},
    {"required of a closed object",
     [](size_t n) {
         return Json{{"required", list(n, text)}, {"additionalProperties", false}};
     }},
    {"properties and others",
     [](size_t n) {
         return Json{{"properties", map(n, number)}, {"additionalProperties", true}};
     }},
    {"names",
     [](size_t n) {
         return Json{{"propertyNames", {{"enum", list(n, text)}}}, {"required", list(n, text)}};
     }},
    {"choices of names",
     [](size_t n) {
         return Json{{"propertyNames", {{"anyOf", list(n, [](size_t i) { return Json{{"const", key(i)}}; })}}}};
     }},
    {"anyOf of types",
     [](size_t n) {
         return Json{{"anyOf", list(n, number)}};
     }},
    {"anyOf of values",
     [](size_t n) {
         return Json{{"anyOf", list(n, [](size_t i) { return Json{{"const", key(i)}}; })}};
     }},
    {"anyOf beside an enum",
     [](size_t n) {
         return Json{{"enum", numbered(n)}, {"anyOf", list(n, number)}};
     },
     repeats},
    {"anyOf beside properties",
     [](size_t n) {
         return Json{{"properties", map(n, number)}, {"required", list(n, text)}, {"oneOf", list(n, [](size_t i) {
                                                                                       return Json{{"required", {key(i)}}};
                                                                                   })}};
     },
     repeats},
    {"anyOf in anyOf",
     [](size_t n) {
         return nested(80, {{"anyOf", list(n, number)}}, [](Json s) { return Json{{"title", "t"}, {"anyOf", {std::move(s)}}}; });
     }},
    {"nullable in nullable",
     [](size_t n) {
         return nested(40, {{"enum", list(n, text)}}, [](Json s) { return Json{{"nullable", true}, {"items", std::move(s)}}; });
     }},
    {"types in types",
     [](size_t n) {
         return nested(4, {{"enum", list(n, text)}}, [](Json s) {
             return Json{{"type", {"object", "array", "null"}}, {"items", s}, {"properties", {{"a", s}}}};
         });
     }},
    {"references",
     [](size_t n) {
         return Json{{"$defs", map(n, number)}, {"prefixItems", list(n, [](size_t i) {
                                                     return Json{{"$ref", "#/$defs/" + key(i)}};
                                                 })}};
     }},
    {"references that have keywords beside them",
     [](size_t n) {
         return Json{{"$defs", {{"e", {{"enum", numbered(n)}}}}}, {"prefixItems", list(n, [](size_t) {
                                                                       return Json{{"$ref", "#/$defs/e"}, {"type", "integer"}};
                                                                   })}};
     },
     repeats},
    {"a chain of references",
     [](size_t n) {
         return Json{{"$defs", map(n,
                                   [](size_t i) {
                                       return Json{{"$ref", "#/$defs/" + key(i + 1)}, {"minLength", i}};
                                   })},
                     {"$ref", "#/$defs/k0"}};
     }},
    {"references by name",
     [](size_t n) {
         return Json{{"$defs", map(n,
                                   [](size_t i) {
                                       return Json{{"$id", "n" + std::to_string(i)}};
                                   })},
                     {"prefixItems", list(n, [](size_t i) {
                          return Json{{"$ref", "n" + std::to_string(i)}};
                      })}};
     }},
    {"anchors in a long name",
     [](size_t n) {
         return Json{{"$id", std::string(8 * n, 'i')}, {"$defs", map(n, [](size_t i) { return Json{{"$anchor", key(i)}}; })}};
     }},
    {"schemas in a long name",
     [](size_t n) {
         return Json{{"properties", {{std::string(8 * n, 'p'), {{"properties", map(n, [](size_t i) {
                                                                     return Json{{"$id", key(i)}};
                                                                 })}}}}}};
     }},
    {"keywords that are null",
     [](size_t n) { return with(map(n, [](size_t i) { return i == 0 ? Json() : Json(1); }), "type", "string"); }},
    {"other keywords, and required", [](size_t n) { return with(map(n, number), "required", list(n, text)); }},
    {"a pattern of groups",
     [](size_t n) {
         return Json{{"pattern", "^" + repeated(n, "(a)") + "$"}};
     }},
    {"a pattern of classes",
     [](size_t n) {
         return Json{{"pattern", "^" + repeated(n, "[a-c]") + "$"}};
     }},
    {"a pattern of one class",
     [](size_t n) {
         return Json{{"pattern", "^[" + repeated(n, "ac") + "]$"}};
     }},
    {"a pattern of choices",
     [](size_t n) {
         return Json{{"pattern", "^(x" + repeated(n, "|a") + ")$"}, {"maxLength", 9}};
     }},
    {"a pattern and a length",
     [](size_t n) {
         return Json{{"pattern", "^" + repeated(n, "a*b") + "$"}, {"maxLength", 20000}};
     }},
    {"lookaheads",
     [](size_t n) {
         return Json{{"pattern", "^" + repeated(n, "(?=.*a)") + "b*$"}};
     }},
    {"lookaheads of letters",
     [](size_t n) {
         return Json{{"pattern", "^(?=.*" + repeated(n, "[a-c]") + ").*$"}};
     }},
    {"repetitions of repetitions",
     [](size_t n) {
         return Json{{"pattern", "^" + repeated(20, "(") + "aaa|aaaaa" + repeated(20, ")+") + repeated(n, "b") + "$"},
                     {"minLength", n + 4},
                     {"maxLength", n + 4}};
     }},
    {"patterns",
     [](size_t n) {
         return Json{{"prefixItems", list(n, [](size_t i) { return Json{{"pattern", "^" + key(i) + "$"}}; })}};
     }},
    {"patterns of names",
     [](size_t n) {
         return Json{{"patternProperties", map(n, number, "^k")}};
     }},
    {"lengths",
     [](size_t n) {
         return Json{{"prefixItems", list(n, [](size_t i) { return Json{{"maxLength", i}}; })}};
     }},
    {"multiples",
     [](size_t n) {
         return Json{{"prefixItems", list(n, [](size_t i) { return Json{{"multipleOf", i % 90 + 1}}; })}};
     }},
    {"bounds",
     [](size_t n) {
         return Json{{"prefixItems", list(n, [](size_t i) { return Json{{"minimum", 0.37 * double(i)}}; })}};
     }},
    {"formats",
     [](size_t n) {
         return Json{{"prefixItems", list(n, [](size_t) { return Json{{"format", "ipv6"}}; })}};
     }},
    {"long texts",
     [](size_t n) {
         return Json{{"const", std::string(8 * n, 'x')}, {"title", std::string(8 * n, 'x')}};
     }},
};

// All that a request's schema goes through; it may be refused.
void compile(const Json& schema) {
    try {
        const Grammar grammar(parse_gbnf(json_schema_gbnf(schema, false)));
    } catch (const Error&) {
    }
}

#ifdef _WIN32
constexpr double tick_s = 0.016; // of the times of processes
#else
constexpr double tick_s = 1e-6;
#endif

// Seconds that this process has worked: others may use the machine.
double now() {
#ifdef _WIN32 // where std::clock() is the time that has passed
    FILETIME created, ended, system, user;
    GetProcessTimes(GetCurrentProcess(), &created, &ended, &system, &user);
    return double(uint64_t(user.dwHighDateTime) << 32 | user.dwLowDateTime) * 1e-7;
#else
    return double(std::clock()) / CLOCKS_PER_SEC;
#endif
}

double seconds(const Json& schema) {
    double best = 1e9;
    for (int i = 0; i < 2; ++i) {
        const double began = now();
        compile(schema);
        best = std::min(best, now() - began);
    }
    return best;
}

} // namespace

TEST_CASE("a schema of twice the length takes about twice the time, whatever its keywords") {
    // Shorter times are not compared, and longer ones are enough.
    constexpr double floor_s = std::max(0.02, 8 * tick_s), long_s = std::max(0.1, 2 * floor_s);
    for (const Kind& kind : kinds) {
        double half = 0, whole = 0;
        const auto is_linear = [&] {
            size_t n = kind.least;
            whole = seconds(kind.make(n));
            do {
                half = std::exchange(whole, seconds(kind.make(n *= 2)));
                if (whole > floor_s && whole > 3 * half) return false;
            } while (n < 16000 && whole < long_s);
            return true;
        };
        const bool is_right = is_linear() || is_linear() || is_linear(); // one of them undisturbed
        CAPTURE(kind.name);
        CAPTURE(half);
        CAPTURE(whole);
        CHECK(is_right);
    }
}

// The bound is what another schema takes, on the same machine in the same moment.
TEST_CASE("a schema's compilation is given up soon after nobody waits for it, whatever its keywords") {
    constexpr size_t size = 4096;
    const double bound = seconds(Json{{"prefixItems", list(2 * size, [](size_t) { return Json{{"format", "ipv6"}}; })}});
    for (const Kind& kind : kinds) {
        CAPTURE(kind.name);
        const Json schema = kind.make(size);
        size_t looks = 0;
        double last = now(), longest = 0;
        {
            const InterruptScope scope([&] {
                longest = std::max(longest, now() - std::exchange(last, now()));
                ++looks;
                return false;
            });
            compile(schema);
        }
        longest = std::max(longest, now() - last);
        CHECK(looks >= size / 1024 - 1); // one for every 1024 steps, and each part of the schema is a step at least
        CHECK(longest < bound);
        const InterruptScope over([] { return true; });
        CHECK_THROWS_AS(compile(schema), Interrupted);
    }
}
