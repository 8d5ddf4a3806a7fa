// tq-run models: the models that -hf has downloaded, and their deletion.
// A file is opened only for the formats of its weights. One that cannot be read is listed with the reason instead, so that it can
// be removed all the same. Files that are no model here (earlier versions, unfinished downloads) are listed by their sum, as they
// take room, too.
#include "base/environment.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/open.h"
#include "model/hub/hub.h"
#include "model/hub/kept.h"
#include "model/weights/mixture.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/cli/time_left.h"
#include "tools/tq-run/commands.h"
#include <nlohmann/json.hpp>

namespace tq {
namespace {

struct ListArguments {
    bool json = false;
};

struct RemoveArguments {
    std::vector<std::string> names;
};

// Shortens an error of the loader, by the path, the tensor and what to do: "its weight format is IQ4_KS, which ik_llama.cpp alone
// runs".
std::string briefly(std::string text, const KeptModel& model) {
    const auto drop = [&](const std::string& beginning, std::string_view end) {
        if (const size_t at = text.find(end, beginning.size()); text.starts_with(beginning) && at != text.npos)
            text.erase(0, at + end.size());
    };
    drop(utf8_text(model.path), ": "); // of a directory also the file in it
    drop("tensor '", "': ");
    return text.substr(0, std::min(text.find("; "), text.find(" (")));
}

constexpr uint64_t shown_bytes = 100'000; // 0.1 MiB

struct Formats {
    std::string shares; // of the formats of its weights
    std::string error;  // if the file cannot be read
};

Formats formats_of(const KeptModel& model) {
    try {
        return {describe_mixture(bytes_by_format(open_model_file(model.path))), ""};
    } catch (const Error& error) {
        return {"", briefly(error.what(), model)};
    }
}

int list_models(const ListArguments& arguments) {
    const std::filesystem::path cache = hub_options(environment_variable).cache;
    const auto repositories = kept_repositories(cache);
    auto json = nlohmann::ordered_json::array();
    std::vector<std::vector<std::string>> rows{{"model, for -hf", "size", "used before", "formats"}};
    uint64_t bytes = 0;
    for (const KeptRepository& repository : repositories) {
        for (const KeptModel& model : repository.models) {
            const std::string file = model.file.empty() ? "" : " --hf-file " + printable(model.file);
            const auto [formats, error] = formats_of(model);
            rows.push_back({model.request + file, size_text(model.bytes), duration_text(model.unused.count()),
                            error.empty() ? formats : error});
            json.push_back({{"repository", repository.name},
                            {"model", model.request},
                            {"file", model.file},
                            {"bytes", model.bytes},
                            {"formats", formats},
                            {"error", error},
                            {"seconds_since_use", model.unused.count()}});
            bytes += model.bytes;
        }
        if (repository.other_bytes >= (repository.models.empty() ? 1 : shown_bytes)) // the name of a commit is not worth a row
            rows.push_back({repository.name + ", other files", size_text(repository.other_bytes), "", ""});
        bytes += repository.other_bytes;
    }
    if (arguments.json) {
        write_output(json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
        return 0;
    }
    const std::string place = printable(utf8_text(cache), 300);
    if (repositories.empty())
        write_text(fmt::format("no model is in {}: tq-run chat -hf USER/REPOSITORY[:QUANT] downloads one\n", place));
    else
        write_text(markdown(rows, 1, text_columns()) +
                   fmt::format("{} in {}; tq-run models remove deletes a model\n", size_text(bytes), place));
    return 0;
}

int remove_models(const RemoveArguments& arguments) {
    const std::filesystem::path cache = hub_options(environment_variable).cache;
    for (const std::string& name : arguments.names)
        write_text(fmt::format("{}: {} deleted\n", printable(name, 200), size_text(remove_kept(cache, name))));
    return 0;
}

} // namespace

void add_models(ArgumentParser& app, Action& action) {
    const auto list_flags = [](ArgumentParser& command, ListArguments& a) { add_flag(command, "--json", a.json, "print JSON"); };
    ArgumentParser models = app.add_command("models", "List or delete the models that -hf has downloaded");
    const auto listed = std::make_shared<ListArguments>();
    list_flags(models, *listed);
    models.callback([&action, listed] { // called after the callbacks of the commands below it
        if (!action) action = [listed] { return list_models(*listed); };
    });
    add_command<ListArguments>(models, action, "list", "List them, with sizes and times since their last use", list_flags,
                               list_models);
    const auto remove_flags = [](ArgumentParser& command, RemoveArguments& a) {
        add_option(command, "name", a.names, "NAME...",
                   "USER/REPOSITORY:QUANT as the list has it, or USER/REPOSITORY with all its files")
            .required();
    };
    add_command<RemoveArguments>(models, action, "remove", "Delete models", remove_flags, remove_models);
}

} // namespace tq
