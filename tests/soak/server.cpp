#include "tests/soak/server.h"
#include "base/error.h"
#include "base/splitmix64.h"
#include "model/prefix/cold.h"
#include <algorithm>

namespace tq::soak {
namespace {

uint32_t common_ids(const Ids& a, const Ids& b) { return uint32_t(std::ranges::mismatch(a, b).in1 - a.begin()); }

} // namespace

Server::Server(Engine& engine, const std::vector<Request>& plan, Answers answers, const ServerOptions& options)
    : forward_(engine.forward()), plan_(plan), options_(options), page_bytes_(forward_.cache().page_layout().bytes(page_tokens)),
      answers_(std::move(answers)), slots_(slots), state_(options.seed) {
    PrefixCache::Options limits{.memory_bytes = options.memory_pages * page_bytes_};
    limits.disk = {options.directory, options.disk_pages * page_bytes_};
    const CacheOwner owner{engine.config(), forward_.kv(), "soak", "soak", forward_.computation()};
    prefix_.emplace(forward_, owner_texts(owner), limits);
    for (const Request& request : plan)
        if (!answers_.contains(request.number)) waiting_.push_back(&request);
}

uint64_t Server::splitmix64_() { return splitmix64(state_) >> 33; }

// Puts the beginning of the prompt into a slot from one of the slots that have the most of it. Returns false if none has more
// than a few tokens.
bool Server::fork_for(uint32_t slot, const Ids& prompt) {
    uint32_t best = slot, tokens = 8;
    for (uint32_t other = 0; other < slots; other++) {
        const uint32_t n = std::min({common_ids(slots_[other].ids, prompt), run_tokens(other), uint32_t(prompt.size()) - 1});
        if (other != slot && n > tokens) best = other, tokens = n;
    }
    if (best == slot) return false;
    forward_.cache().fork(best, slot, tokens);
    slots_[slot].cold = tokens;
    counts_.forked++;
    return true;
}

void Server::begin(uint32_t slot, const Request& request) {
    empty(slot);
    Active& active = slots_[slot];
    active = {.request = &request, .ids = prompt_of(plan_, request, answers_), .idle = false};
    active.prompt = uint32_t(active.ids.size());
    if (!options_.forks || random(2) == 0 || !fork_for(slot, active.ids)) active.cold = prefix_->take(slot, active.ids, 0);
}

// Gives a slot without work one of the requests whose prompt is known.
bool Server::admit() {
    std::vector<uint32_t> free;
    for (uint32_t slot = 0; slot < slots; slot++)
        if (slots_[slot].idle) free.push_back(slot);
    std::erase_if(waiting_, [&](const Request* r) { return answers_.contains(r->number); });
    std::vector<const Request*> ready;
    for (const Request* request : waiting_)
        if (is_ready(*request, answers_)) ready.push_back(request);
    if (free.empty() || ready.empty()) return false;
    const Request* chosen = ready[random(uint32_t(ready.size()))];
    std::erase(waiting_, chosen);
    begin(free[random(uint32_t(free.size()))], *chosen);
    return true;
}

void Server::empty(uint32_t slot) {
    forward_.cache().truncate(slot, 0);
    slots_[slot] = {};
}

// Gives up the pages of a slot without work, or else of the request that has the least of its answer; false if there is only
// one request.
bool Server::make_room() {
    uint32_t victim = slots, active = 0;
    const auto answered = [&](uint32_t slot) { return slots_[slot].ids.size() - slots_[slot].prompt; };
    for (uint32_t slot = 0; slot < slots; slot++) {
        if (slots_[slot].idle && run_tokens(slot) > 0) return empty(slot), true;
        if (slots_[slot].idle) continue;
        active++;
        if (victim == slots || answered(slot) < answered(victim)) victim = slot;
    }
    if (active < 2) return false;
    waiting_.push_back(slots_[victim].request);
    prefix_->store(victim, std::span(slots_[victim].ids).first(run_tokens(victim)), slots_[victim].cold, true);
    empty(victim);
    counts_.preempted++;
    return true;
}

void Server::add_token(uint32_t slot, uint32_t id, const OnAnswer& on_answer) {
    Active& active = slots_[slot];
    const BlockKernels kernels = forward_.block_kernels();
    if (kernels.block == 0) active.cold = run_tokens(slot);
    prefix_->store(slot, std::span(active.ids).first(run_tokens(slot)), active.cold);
    active.ids.push_back(id);
    if (active.ids.size() - active.prompt < active.request->answer_ids) return;
    const Ids answer(active.ids.begin() + active.prompt, active.ids.end());
    prefix_->store(slot, std::span(active.ids).first(run_tokens(slot)), active.cold, true);
    const Request& request = *active.request;
    active.idle = true;
    if (random(2) == 0) empty(slot);
    answers_[request.number] = answer;
    on_answer(request, answer);
}

// Runs slices of whole blocks of prompts, and tokens of answers, of all slots together.
void Server::run_pass() {
    std::vector<Span> spans;
    std::vector<uint32_t> ends;
    for (uint32_t slot = 0; slot < slots; slot++) {
        const Active& active = slots_[slot];
        if (active.idle || random(5) == 0) continue;
        const uint32_t done = run_tokens(slot), left = uint32_t(active.ids.size()) - done, part = block * (1 + random(4));
        const uint32_t count = left > part ? part : left;
        spans.push_back(
            {slot, std::span(active.ids).subspan(done, count), count == left ? Span::Logits::last : Span::Logits::none});
        ends.push_back(done + count);
    }
    if (spans.empty()) return;
    std::vector<std::pair<uint32_t, uint32_t>> sampled;
    const auto sample = [&](size_t span, uint32_t, std::span<const float> logits) {
        sampled.emplace_back(spans[span].slot, most_likely(logits));
    };
    try {
        forward_.run(spans, sample);
    } catch (const OutOfMemory&) {
        if (!make_room()) throw;
        return;
    }
    for (size_t i = 0; i < spans.size(); i++) {
        Active& active = slots_[spans[i].slot];
        const uint32_t begin = ends[i] - uint32_t(spans[i].ids.size());
        if (ends[i] <= active.prompt && active.cold == begin) active.cold = cold_tokens(forward_.block_kernels(), begin, ends[i]);
    }
    for (const auto& [slot, id] : sampled) add_token(slot, id, on_answer_);
}

void Server::check_limits() {
    const PrefixCache::Statistics now = prefix_->statistics();
    if (now.memory_bytes > options_.memory_pages * page_bytes_)
        fail("the prefix cache has {} bytes in memory, of at most {}", now.memory_bytes, options_.memory_pages * page_bytes_);
    for (const std::string& warning : prefix_->take_warnings()) fail("{}", warning);
}

void Server::run(const OnAnswer& on_answer) {
    on_answer_ = on_answer;
    for (;;) {
        while (random(3) > 0 && admit()) {
        }
        const auto busy = std::ranges::find_if(slots_, [](const Active& a) { return !a.idle; });
        if (busy == slots_.end() && !admit()) {
            if (waiting_.empty()) return;
            continue;
        }
        run_pass();
        const uint32_t slot = random(slots);
        if (!slots_[slot].idle && random(20) == 0) {
            waiting_.push_back(slots_[slot].request);
            empty(slot);
            counts_.cancelled++;
        }
        check_limits();
    }
}

ServerCounts Server::finish() {
    for (uint32_t slot = 0; slot < slots; slot++) empty(slot);
    Cache& cache = forward_.cache();
    if (cache.free_pages() + prefix_->spare_pages() != cache.shape().pages)
        fail("{} pages are free and {} spare, of {}", cache.free_pages(), prefix_->spare_pages(), cache.shape().pages);
    prefix_->flush();
    counts_.found = prefix_->statistics();
    prefix_.reset();
    if (cache.free_pages() != cache.shape().pages) fail("{} pages are free, of {}", cache.free_pages(), cache.shape().pages);
    return counts_;
}

} // namespace tq::soak
