// The radix tree of the prefix cache: the token ids of all sequences that are known, page by page. It knows the places of a
// page's bytes on the device and in memory, and which were used least recently; model/prefix/cache.h moves them.
#pragma once
#include "model/cache.h"
#include "model/prefix/page_file.h"
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tq {

// The source of a page that was not used yet.
enum class FetchedFrom { nowhere, store, machine };

// A page: 256 ids, or fewer in the last one of a sequence, which no page follows. Pages that follow the same one may begin with
// the same ids. A root has no ids.
struct PrefixNode {
    PrefixNode* parent = nullptr;
    PageHead head;
    std::vector<std::unique_ptr<PrefixNode>> children;
    std::optional<uint32_t> device;                      // the page in the device's pool, which the tree retains
    std::shared_ptr<const std::vector<std::byte>> bytes; // the content in host memory
    FetchedFrom fetched = FetchedFrom::nowhere;
    uint64_t used = 0; // the time of the last use; a parent's is never earlier
    // The window and states of a slot whose tokens end in this page, in host memory, and the time of their last use.
    struct State {
        std::shared_ptr<const SavedSlot> saved;
        uint64_t used;
    };
    std::vector<State> states;

    bool is_full() const;
    State* state_at(uint32_t tokens); // null: none
};

class PrefixTree {
  public:
    explicit PrefixTree(PageName owner);
    PrefixTree(const PrefixTree&) = delete;

    // Asked for pages of the disk that follow `node` and begin as `ids` do: it may add children to it.
    using Expand = std::function<void(PrefixNode& node, std::span<const uint32_t> ids)>;

    // The longest beginning of `ids` that is known, to the token: pages in order; the last may be used in part.
    struct Found {
        std::vector<PrefixNode*> pages;
        uint32_t tokens = 0;
    };
    // exact: only tokens with the bits of a cold run (model/prefix/cold.h). Otherwise sampled ones, too; they are preferred if
    // both are known, since a conversation goes on with its own.
    Found find(PrefixNode& root, std::span<const uint32_t> ids, bool exact = true, const Expand& expand = {});
    Found find(std::span<const uint32_t> ids, bool exact = true, const Expand& expand = {}) {
        return find(root(), ids, exact, expand);
    }

    // Returns the page of these ids after `parent`, the first `cold` of them cold: a new one, or one that has them all already.
    PrefixNode& insert(PrefixNode& parent, std::span<const uint32_t> ids, uint32_t cold);
    // Returns the page of exactly these ids after `parent`, the first `cold` of them cold; null: it is not known.
    PrefixNode* known(PrefixNode& parent, std::span<const uint32_t> ids, uint32_t cold) const;
    // Takes partly filled siblings of `node` out of the tree if `node` has all their tokens, and as many cold ones.
    std::vector<std::unique_ptr<PrefixNode>> take_superseded(PrefixNode& node);
    PrefixNode& add(PrefixNode& parent, PageHead head); // a page that `parent` does not have yet
    // Removes the pages that are lost, unless others follow them that are not.
    void drop_if(const std::function<bool(const PrefixNode&)>& is_lost);

    // Marks a page, and with it all before, as used now.
    void touch(PrefixNode& node);
    uint64_t next_time() { return ++now_; } // of a use
    // Returns the least recently used page that `is_candidate` accepts; null: none. If pages were used at the same time, it is
    // one that follows the others, so that no page loses those before it.
    PrefixNode* least_recent(const std::function<bool(const PrefixNode&)>& is_candidate);
    void each(const std::function<void(PrefixNode&)>& use);

    // Returns the root of a tenant's sequences. Tenants do not find one another's pages.
    PrefixNode& root(std::string_view tenant = {});

  private:
    const PageName owner_;
    std::map<std::string, PrefixNode, std::less<>> roots_; // by tenant
    uint64_t now_ = 0;
};

} // namespace tq
