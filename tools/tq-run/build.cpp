#include "tools/tq-run/build.h"
#include <fmt/format.h>

namespace tq {
namespace {

#if defined(__clang__)
constexpr const char* compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* compiler = "gcc " __VERSION__;
#else
constexpr const char* compiler = "another compiler";
#endif
#ifdef NDEBUG
constexpr const char* build_type = "release";
#else
constexpr const char* build_type = "debug";
#endif

} // namespace

std::string release_description() { return fmt::format("tq-run {} ({}, {})", TQ_VERSION, compiler, build_type); }

std::string build_description() {
    return fmt::format("tq-run {} ({}, {}, {})", TQ_VERSION, build_commit(), compiler, build_type);
}

} // namespace tq
