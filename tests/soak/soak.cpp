// soak: many conversations that share beginnings, branch, are cancelled and preempted, in a process that is killed again and
// again, against the same conversations one after the other. All answers must be equal, no page may be lost, no limit exceeded.
#include "base/child_process.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/splitmix64.h"
#include "tests/soak/server.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>

namespace {

using namespace tq;
using namespace tq::soak;
namespace fs = std::filesystem;

struct Options {
    std::string device = "cpu", type = "tq4", life; // life: a process of the soak, with this directory
    uint32_t sequences = 64, kills = 8;
    uint64_t seed = 1, life_seed = 0;
    bool deterministic = false;

    EngineOptions engine(const fs::path& directory) const {
        return {directory / "model.gguf", device, {parse_kv_type(type), parse_kv_type(type)}, deterministic};
    }
};

// A line of the file of answers, and of a life's output: the request's number and the ids. Lines cut off by a kill are left out.
std::string answer_line(uint32_t number, const Ids& answer) {
    std::string line = fmt::format("answer {}", number);
    for (const uint32_t id : answer) line += fmt::format(" {}", id);
    return line + " .";
}

bool read_answer(const std::string& line, Answers& answers) {
    std::istringstream in(line);
    std::string word;
    uint32_t number = 0;
    if (!(in >> word >> number) || word != "answer" || !line.ends_with(" .")) return false;
    Ids ids;
    for (uint32_t id; in >> id;) ids.push_back(id);
    answers[number] = ids;
    return true;
}

Answers read_answers(const fs::path& path) {
    Answers answers;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) read_answer(line, answers);
    return answers;
}

// A process of the soak: answers the remaining requests, line by line.
int live(const Options& o) {
    const fs::path directory = o.life;
    Engine engine(o.engine(directory));
    const auto plan = make_plan(o.seed, o.sequences);
    Server server(engine, plan, read_answers(directory / "answers"),
                  {.directory = directory / "prefix", .forks = o.deterministic, .seed = o.life_seed});
    server.run([](const Request& request, const Ids& answer) {
        std::puts(answer_line(request.number, answer).c_str());
        std::fflush(stdout);
    });
    const ServerCounts counts = server.finish();
    fmt::print("end: {} forked, {} cancelled, {} preempted; tokens found on the device {}, in memory {}, on the disk {}\n",
               counts.forked, counts.cancelled, counts.preempted, counts.found.device_tokens, counts.found.memory_tokens,
               counts.found.disk_tokens);
    return 0;
}

uint64_t bytes_in(const fs::path& directory) {
    uint64_t bytes = 0;
    std::error_code gone; // a file that is renamed meanwhile
    for (fs::recursive_directory_iterator at(directory, gone), end; !gone && at != end; at.increment(gone))
        if (const auto size = at->file_size(gone); !gone && at->path().extension() == ".page") bytes += size;
    return bytes;
}

// Runs a life until it ends or has given `max_answers` answers. Returns whether it ended.
bool run_life(const Options& o, const fs::path& directory, uint64_t seed, std::optional<uint32_t> max_answers) {
    std::vector<std::string> command{executable_path().string(),
                                     "--life",
                                     directory.string(),
                                     "--device",
                                     o.device,
                                     "--type",
                                     o.type,
                                     "--sequences",
                                     std::to_string(o.sequences),
                                     "--seed",
                                     std::to_string(o.seed),
                                     "--life-seed",
                                     std::to_string(seed)};
    if (o.deterministic) command.emplace_back("--deterministic");
    ChildProcess child(command, {});
    std::ofstream answers(directory / "answers", std::ios::app);
    for (uint32_t count = 0; !max_answers || count < *max_answers;) {
        const auto line = child.read_line(std::chrono::minutes(2));
        if (!line) {
            if (!child.output_ended()) fail("no answer for two minutes");
            const auto status = child.wait(std::chrono::minutes(1));
            if (status != 0) fail("it ended with {}", status ? describe_exit(*status) : "no status");
            return true;
        }
        Answers one;
        if (!read_answer(*line, one)) {
            fmt::print("{}\n", *line);
            continue;
        }
        answers << *line << std::endl;
        count++;
    }
    child.kill();
    return false;
}

int run_soak(const Options& o) {
    const test::TemporaryDirectory temporary;
    const fs::path directory = temporary.path();
    Config config = test::small_config();
    config.num_attention_heads = 8;
    config.num_key_value_heads = 4;
    test::write_random_model(directory / "model.gguf", {config, GgmlType::Q8_0, true, 3, {}});
    const auto plan = make_plan(o.seed, o.sequences);
    Engine engine(o.engine(directory));
    const Answers expected = run_serially(engine, plan);
    uint64_t state = o.seed, max_bytes = 0;
    uint32_t killed = 0;
    const uint64_t page_bytes = engine.forward().cache().page_layout().bytes(page_tokens);
    for (bool ended = false; !ended;) {
        std::optional<uint32_t> max;
        if (killed < o.kills) max = uint32_t(splitmix64(state) % (2 * plan.size() / std::max(o.kills, 1u) + 1));
        ended = run_life(o, directory, splitmix64(state), max);
        killed += ended ? 0 : 1;
        max_bytes = std::max(max_bytes, bytes_in(directory / "prefix"));
    }
    const Answers got = read_answers(directory / "answers");
    uint32_t wrong = 0;
    for (const auto& [number, answer] : expected)
        if (const auto at = got.find(number); at == got.end() || at->second != answer) {
            if (wrong++ < 5) fmt::print("request {} has another answer than alone\n", number);
        }
    const uint64_t limit = ServerOptions().disk_pages * (page_bytes + 2000) + page_bytes;
    fmt::print("{} sequences, {} requests, {} processes killed; at most {} KiB on the disk\n", o.sequences, plan.size(), killed,
               max_bytes / 1024);
    if (max_bytes > limit) fmt::print("more than the limit of {} KiB\n", limit / 1024);
    fmt::print("{} passed, {} failed\n", expected.size() - wrong, wrong);
    return wrong == 0 && max_bytes <= limit ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) try {
    CLI::App app("Runs many conversations together, in processes that are killed, and compares them with serial runs.");
    Options o;
    app.add_option("--device", o.device, "cpu, or a device's number or a part of its name")->capture_default_str();
    app.add_option("--type", o.type, "of the cache")->capture_default_str();
    app.add_option("--sequences", o.sequences, "sequences, with three requests each")->capture_default_str();
    app.add_option("--kills", o.kills, "how many processes are killed")->capture_default_str();
    app.add_option("--seed", o.seed, "seed")->capture_default_str();
    app.add_flag("--deterministic", o.deterministic, "deterministic kernels; slots are forked, too");
    app.add_option("--life", o.life)->group("");
    app.add_option("--life-seed", o.life_seed)->group("");
    CLI11_PARSE(app, argc, argv);
    return o.life.empty() ? run_soak(o) : live(o);
} catch (const tq::Error& e) {
    fmt::print(stderr, "soak: {}\n", e.what());
    return 1;
}
