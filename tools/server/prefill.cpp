// POST /v1/prefill: the pages of a prompt for another machine, which has said what it takes (model/prefix/page_stream.h). They
// are sent as they are computed. A page that is not there any more ends the reply: the other machine computes the rest.
#include "base/printable.h"
#include "model/cache.h"
#include "model/prefix/page_stream.h"
#include "model/prefix/sent_page.h"
#include "tools/server/handlers.h"
#include "tools/server/json_fields.h"
#include "tools/server/prompt.h"
#include "tools/server/prompt_values.h"
#include <fmt/ranges.h>

namespace tq::server {
namespace {

constexpr std::chrono::milliseconds alive_interval{1000};

struct PrefillTask {
    std::vector<uint32_t> ids; // of whole pages
    uint32_t known = 0;        // pages that the other machine has
    std::string tenant;

    uint32_t pages() const { return uint32_t(ids.size() / page_tokens); }
};

std::vector<uint32_t> read_prefill_ids(const Service& service, const Json& body) {
    const Json* list = array_field(body, "ids", service.scheduler.context_size());
    if (!list || list->empty() || list->size() % page_tokens != 0)
        bad_request("ids", "\"ids\" must be a list of the token ids of whole pages, of {} tokens each", page_tokens);
    return read_ids(service, *list, "ids");
}

// Throws a 409 that says in what the pages of the two machines differ.
// Pages of another model, cache type or computation would be read without any sign of it, and answers would be subtly wrong. So
// each property is compared as text, and one that only one side knows counts as different.
void require_same_owner(const OwnerTexts& ours, const Json& body) {
    const Json* theirs = object_field(body, "owner");
    if (!theirs) bad_request("owner", "\"owner\" is missing: what the pages belong to");
    std::vector<std::string> differ;
    for (const auto& [key, text] : ours) {
        const Json* other = member(*theirs, key.c_str());
        const std::string there = other && other->is_string() ? other->get<std::string>() : "nothing";
        if (there != text) differ.push_back(fmt::format("{} is '{}' here and '{}' there", key, text, printable(there, 200)));
    }
    if (theirs->size() != ours.size() && differ.empty()) differ.push_back("there are other properties there");
    if (differ.empty()) return;
    throw ApiError(
        409, "invalid_request_error",
        fmt::format("this server has other pages: {}. Both machines need the same model file, and the same -ctk, -ctv and "
                    "other flags of the cache",
                    fmt::join(differ, ", ")),
        "owner");
}

// Sends the pages of a prompt that is being run.
// All pages are named from the first on, even if the other machine has some of them, because a page's name depends on the name
// of the page before. The destructor cancels the run: a machine that went away costs no more passes.
class PrefillReply {
  public:
    PrefillReply(Service& service, PrefillTask task, OwnerTexts owner, std::shared_ptr<serving::Stream> stream)
        : service_(service), task_(std::move(task)), owner_(owner_name(owner)), stream_(std::move(stream)) {}
    ~PrefillReply() { stream_->cancel(); }
    PrefillReply(const PrefillReply&) = delete;
    PrefillReply& operator=(const PrefillReply&) = delete;

    void send(const Send& send) {
        PageName parent = owner_;
        for (uint32_t page = 0; page < task_.pages(); page++) {
            const auto ids = std::span<const uint32_t>(task_.ids).subspan(size_t(page) * page_tokens, page_tokens);
            const PageHead head = make_page_head(owner_, parent, ids, page_tokens);
            parent = head.name;
            if (page >= task_.known && !send_page(head, page, send)) return;
        }
    }

  private:
    // Waits until the page was run. Returns false if the client is gone.
    // Each progress report sends a page of length 0, which means "still at work". Only this write shows that a client is gone,
    // because a long prompt has nothing else to send for a while.
    bool wait_for(uint32_t page, const Send& send) {
        while (done_tokens_ < (page + 1) * page_tokens && !done_) {
            const serving::Update update = stream_->wait(alive_interval);
            done_tokens_ = std::max(done_tokens_, update.prompt_done);
            done_ = update.done;
            if (update.done && update.finish == serving::Finish::failed) fail("{}", update.error);
            if (!send_bytes(page_length_bytes(0), send)) return false;
        }
        return true;
    }
    bool send_page(const PageHead& head, uint32_t page, const Send& send) {
        if (!wait_for(page, send)) return false;
        const auto end = task_.ids.begin() + ptrdiff_t((page + 1) * page_tokens);
        const auto content = service_.scheduler.page_content({task_.ids.begin(), end}, task_.tenant);
        if (!content) return false;
        const std::vector<std::byte> bytes = sent_page(head, *content, service_.options.prefill.sign);
        return send_bytes(page_length_bytes(bytes.size()), send) && send_bytes(bytes, send);
    }
    static bool send_bytes(std::span<const std::byte> bytes, const Send& send) {
        return send({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }

    Service& service_;
    const PrefillTask task_;
    const PageName owner_;
    const std::shared_ptr<serving::Stream> stream_;
    uint32_t done_tokens_ = 0;
    bool done_ = false;
};

} // namespace

// The prompt is run as a request for no tokens, marked as another machine's (from_machine). PrefillReply sends its pages while it
// runs.
HttpReply prefill(Service& service, const HttpRequest& request) {
    if (!service.options.prefill.owner)
        throw ApiError(501, "invalid_request_error", "this server has no pages for others: its model or cache has none");
    const Json body = parse_body(request.body, service.options.limits);
    PrefillTask task{read_prefill_ids(service, body), 0, request.tenant};
    task.known = uint32_t(integer_field(body, "known", 0, task.pages() - 1).value_or(0));
    const OwnerTexts owner = service.options.prefill.owner();
    require_same_owner(owner, body);
    serving::Request submitted;
    submitted.prompt = task.ids;
    submitted.max_tokens = 0;
    submitted.tenant = request.tenant;
    submitted.from_machine = true;
    auto stream = submit_prompt(service.scheduler, std::move(submitted));
    HttpReply reply;
    reply.type = "application/octet-stream";
    reply.headers = {{"Cache-Control", "no-store"}};
    reply.stream = [pages = std::make_shared<PrefillReply>(service, std::move(task), owner, std::move(stream))](
                       const Send& send) { pages->send(send); };
    return reply;
}

} // namespace tq::server
