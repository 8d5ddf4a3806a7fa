// --prefill-from on both machines. They may compare pages only if their owner is the same (OwnerTexts), but a few of its texts
// must differ or be left out on the way: the model's name, since its fingerprint tells more, and the computation, since another
// machine's is another. With --deterministic the computation stays: equal bits were promised. The name of the key is part of the
// owner, so machines with different keys refuse each other with a clear message instead of rejecting every page.
#include "tools/tq-run/engine/prefill.h"
#include "base/environment.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/fingerprint.h"
#include "model/files/formats/json.h"
#include "model/forward.h"
#include "model/prefix/cold.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/prefill_client.h"
#include "tools/tq-run/engine/prefix_pages.h"
#include <mutex>

namespace tq {
namespace {

constexpr uint64_t max_key_file_bytes = 4096;

// The key of the other machine's API: the first line of the flag's file, else the environment's.
std::string prefill_key(const PrefixArguments& arguments) {
    if (arguments.prefill_key_file.empty()) return environment_variable("TQ_PREFILL_KEY").value_or("");
    std::string text = read_text_file(utf8_path(arguments.prefill_key_file), max_key_file_bytes);
    text.resize(std::min(text.size(), text.find_first_of("\r\n")));
    if (text.empty()) fail("--prefill-key-file: {} has no key in its first line", printable(arguments.prefill_key_file));
    return text;
}

// The owner of pages on their way. Separate rows (--deterministic) are a promise of equal bits: only a machine that computes
// separate rows has pages with these bits.
OwnerTexts owner_on_the_way(OwnerTexts owner, const Forward& forward, const std::string& key_name) {
    owner.erase("model");
    if (forward.block_kernels().block != 0) owner["computation"] = "any device";
    owner["key"] = key_name;
    return owner;
}

} // namespace

void add_prefill_flags(ArgumentParser& command, PrefixArguments& a) {
    ArgumentParser group = command.group("KV cache");
    add_option(group, "--prefill-from", a.prefill_from, "URL",
               "have prompts of more than a page (256 tokens) run by a faster machine with the same model: the address of its "
               "tq-run serve, such as http://desktop:8080")
        .check(parsed_by([](const std::string& text) { check_prefill_address(text); }));
    add_option(group, "--prefill-key-file", a.prefill_key_file, "FILE",
               "file with the API key of that server in its first line; default: TQ_PREFILL_KEY of the environment");
}

std::string prefill_address(const PrefixArguments& arguments) {
    return arguments.prefill_from.empty() ? environment_variable("TQ_PREFILL_FROM").value_or("") : arguments.prefill_from;
}

RemotePages::Options remote_options(const PrefixArguments& arguments, const Engine& engine, const OwnerTexts& owner) {
    const std::string url = prefill_address(arguments);
    check_prefill_address(url);
    const PageKey key = page_key(arguments);
    const OwnerTexts on_the_way = owner_on_the_way(owner, *engine.forward, key.name);
    RemotePages::Options options;
    options.compute = prefill_client(url, prefill_key(arguments), on_the_way);
    options.owner = owner_name(on_the_way);
    options.sign = key.sign;
    options.place = fmt::format("the machine at {}", printable(url, 200));
    return options;
}

// A cache that has anything beside its pages (a window, states) has no pages for other machines, and neither has a model that is
// not from files. The fingerprint reads all weights, so it is computed once, with the first request.
server::PrefillOptions prefill_options(const PrefixArguments& arguments, const Engine& engine) {
    const Forward& forward = *engine.forward;
    const Model& model = engine.model;
    if (forward.cache().shape().has_beside() || model.weights.files.empty()) return {};
    struct Known {
        std::mutex mutex;
        OwnerTexts owner;
    };
    const PageKey key = page_key(arguments);
    const auto known = std::make_shared<Known>();
    known->owner = owner_on_the_way(prefix_owner(engine, ""), forward, key.name);
    const auto owner = [known, &model] {
        const std::lock_guard lock(known->mutex);
        std::string& text = known->owner["fingerprint"];
        if (text.empty())
            text = model_fingerprint(model.config, model.weights, [](uint64_t, uint64_t) { return !interrupted(); });
        return known->owner;
    };
    return {owner, key.sign};
}

} // namespace tq
