// Fields of a request that nothing reads.
#pragma once
#include "base/system_memory.h"
#include "tools/server/json_fields.h"
#include <set>
#include <string>
#include <unordered_set>

namespace tq::server {

// Notes which members of a body are asked for by member() while it lives, in this thread.
class FieldWatch {
  public:
    explicit FieldWatch(const Json& body);
    ~FieldWatch();
    FieldWatch(const FieldWatch&) = delete;
    FieldWatch& operator=(const FieldWatch&) = delete;

    // Returns what the log says of the members that nobody asked for. A value that asks for nothing does not count: false, 0, an
    // empty list, or the field's own default.
    std::set<std::string> unread() const;

  private:
    friend void note_read(const Json& object, const Json& value);
    const Json& body_;
    FieldWatch* const outer_;
    std::unordered_set<const Json*> read_;
};

void note_read(const Json& object, const Json& value); // tells the watch that a member of `object` was asked for

// Parses the body of a request, and returns what `read` makes of it. The tree, which takes many times the memory of its text, is
// gone then, and the log has heard of the fields that `read` did not ask for.
template <class Read> auto read_body(Service& service, const HttpRequest& request, const Read& read) {
    const auto made = [&] {
        const Json body = parse_body(request.body, service.options.limits);
        const FieldWatch watch(body);
        auto out = read(body);
        service.say_ignored(watch.unread());
        return out;
    }();
    constexpr size_t large = 256 << 10; // the allocator would keep what its tree took for the threads that freed it
    if (request.body.size() >= large) return_freed_memory();
    return made;
}

} // namespace tq::server
