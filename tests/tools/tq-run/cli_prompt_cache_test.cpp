// --prompt-cache of tq-run generate and tq-run chat: when a cache is saved, and the messages if that is not possible.
#include "tests/support/child_process.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <fstream>
#include <iterator>

using namespace tq::test;

namespace {

const std::string story = "Once upon a time there was a small fox. The fox lived in a garden near the river. One day it rained,";

struct Files {
    TemporaryDirectory directory;
    std::string cache = (directory.path() / "story.kv").string();

    std::string bytes() const {
        std::ifstream file(cache, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    // Includes drafts; none may be left.
    size_t count() const { return size_t(std::distance(std::filesystem::directory_iterator(directory.path()), {})); }
};

Command command(std::vector<std::string> arguments, std::string input = {}) {
    arguments.insert(arguments.begin(), TQ_RUN);
    for (const char* more : {"--temp", "0", "-n", "12"}) arguments.push_back(more);
    return {std::move(arguments), std::move(input), {}};
}

Finished generate(const std::string& prompt, const std::string& cache, std::vector<std::string> more = {"--device", "cpu"}) {
    more.insert(more.begin(), {"generate", "-p", prompt, "--prompt-cache", cache});
    return run(command(more));
}

// N of "N of M tokens of the prompt were reused"; -1 without that message.
int found(const Finished& finished) {
    const size_t at = finished.error.find(" tokens of the prompt were reused");
    if (at == std::string::npos) return -1;
    return std::stoi(finished.error.substr(finished.error.rfind(": ", at) + 2));
}

int saved(const Finished& finished) {
    const size_t at = finished.error.find(" tokens saved");
    return at == std::string::npos ? -1 : std::stoi(finished.error.substr(finished.error.rfind(": ", at) + 2));
}

} // namespace

TEST_CASE("a prompt is run once") {
    const Files files;
    const Finished first = generate(story, files.cache);
    REQUIRE_MESSAGE(first.status == 0, first.error);
    const int tokens = saved(first);
    CHECK(tokens > 20);
    CHECK(found(first) == -1);
    CHECK(files.count() == 1);
    const std::string bytes = files.bytes();

    const Finished again = generate(story, files.cache);
    CHECK(again.status == 0);
    CHECK(again.output == first.output);
    CHECK(found(again) == tokens - 1); // logits need one token
    CHECK(saved(again) == -1);         // it is already in the file
    CHECK(files.bytes() == bytes);

    files.directory.write("story.kv.0123abcd.part", "what a killed process has left"); // a reader removes it, too
    const Finished longer = generate(story + " and the fox ran home.", files.cache, {"--device", "cpu", "--prompt-cache-ro"});
    CHECK(files.count() == 1);
    CHECK(longer.status == 0);
    CHECK(found(longer) >= tokens - 1);
    CHECK(saved(longer) == -1);
    CHECK(files.bytes() == bytes);
    CHECK(longer.output == generate(story + " and the fox ran home.", (files.directory.path() / "new").string()).output);

    CHECK(saved(generate(story + " and the fox ran home.", files.cache)) > tokens);
    CHECK(found(generate("My name is Tom.", files.cache)) < 2); // another prompt replaces the file
    CHECK(found(generate("My name is Tom.", files.cache)) > 2);
}

TEST_CASE("with --prompt-cache-all the answer is saved as well") {
    const Files files;
    const Finished first = generate(story, files.cache, {"--device", "cpu", "--prompt-cache-all"});
    REQUIRE_MESSAGE(first.status == 0, first.error);
    const std::string answer = first.output.substr(0, first.output.size() - 1);
    const Finished more = generate(story + answer, files.cache);
    CHECK(found(more) >= saved(first) + 10); // the answer's last token was not run
}

TEST_CASE("a long conversation is not replaced by a short one") {
    const Files files;
    std::string longer;
    for (int i = 0; i < 5; ++i) longer += story + ' ';
    const int tokens = saved(generate(longer, files.cache));
    REQUIRE(tokens > 80);
    const std::string bytes = files.bytes();
    for (const char* all : {"", "--prompt-cache-all"}) {
        std::vector<std::string> more{"--device", "cpu"};
        if (*all) more.push_back(all);
        const Finished other = generate("My name is Tom.", files.cache, more);
        CHECK(other.status == 0);
        CHECK(saved(other) == -1);
        CHECK(contains(other.error, "of its " + std::to_string(tokens) + " tokens would be lost"));
        CHECK(files.bytes() == bytes);
    }
}

TEST_CASE("the CPU's file serves the device, and a chat") {
    const Files files;
    const Finished first = generate(story, files.cache);
    const Finished device = generate(story, files.cache, {"--device", "0"});
    CHECK(device.status == 0);
    CHECK(found(device) == saved(first) - 1);

    const std::vector<std::string> chat{
        "chat",     "-st", "-sys",           "You are Mira. You live near the harbor, and you like soup.",
        "--device", "cpu", "--prompt-cache", files.cache + "2"};
    const auto ask = [&](const std::string& question, const char* more) {
        auto arguments = chat;
        arguments.insert(arguments.end(), {"-p", question});
        if (*more) arguments.push_back(more);
        return run(command(arguments));
    };
    const Finished hello = ask("Hello!", ""), name = ask("What is your name?", "--prompt-cache-ro"), same = ask("Hello!", "");
    CHECK(saved(hello) > 15);
    CHECK(found(name) > 10); // the system prompt, with which both begin
    CHECK(found(name) < saved(hello) - 1);
    CHECK(saved(name) == -1);
    CHECK(found(same) == saved(hello) - 1);
    CHECK(same.output == hello.output);
    auto all = chat;
    all.erase(all.begin() + 1); // a conversation
    all.push_back("--prompt-cache-all");
    const Finished talk = run(command(all, "Hello!\nHow are you?\n"));
    CHECK(talk.status == 0);
    CHECK(found(talk) == saved(hello) - 1);
    CHECK(saved(talk) > saved(hello) + 10);
}

TEST_CASE("files that do not fit are refused and stay") {
    const Files files;
    REQUIRE(generate(story, files.cache, {"--device", "cpu", "-ctk", "tq4"}).status == 0);
    const std::string bytes = files.bytes();
    const auto refused = [&](std::vector<std::string> more, const std::string& why) {
        more.insert(more.end(), {"--device", "cpu"});
        const Finished finished = generate(story, files.cache, more);
        CAPTURE(finished.error);
        CHECK(finished.status == 1);
        CHECK(finished.output == "");
        CHECK(contains(finished.error, why));
        CHECK(contains(finished.error, "name another file with --prompt-cache"));
        CHECK(files.bytes() == bytes);
    };
    refused({"-ctk", "tq3"}, "it was saved with layer 0 in tq4/tq4, but this cache stores it in tq3/tq4");
    refused({"--kv-rotation", "haar"}, "give the same --kv-rotation");
    refused({"-ctk", "tq4", "--kv-condition", "none"}, "give the same --kv-condition");
    refused({"-ctk", "tq4", "--rope-scaling", "linear", "--rope-scale", "2"}, "give the same --rope flags");
    std::string former = bytes; // as if saved with types of former versions
    for (size_t at; (at = former.find("tq4/tq4")) != std::string::npos;) former.replace(at, 7, "tq4q/a4");
    files.directory.write("story.kv", former);
    const Finished of_former = generate(story, files.cache, {"--device", "cpu", "-ctk", "tq4q", "-ctv", "a4"});
    CHECK(of_former.status == 1);
    CHECK(contains(of_former.error, "tq4q is no longer a cache type; tq4 is used instead"));
    CHECK(contains(of_former.error, "it was saved with layer 0 in tq4q/a4, which is no longer a cache type: name another file"));
    CHECK(files.bytes() == former);
    std::string flipped = bytes;
    flipped[flipped.size() / 2] = char(flipped[flipped.size() / 2] ^ 4);
    files.directory.write("story.kv", flipped);
    const Finished damaged = generate(story, files.cache, {"--device", "cpu", "-ctk", "tq4"});
    CHECK(damaged.status == 1);
    CHECK(contains(damaged.error, "has a wrong checksum: the file is damaged"));
    std::string header = bytes;
    header[60] = '\xff';
    files.directory.write("story.kv", header);
    const Finished unreadable = generate(story, files.cache, {"--device", "cpu", "-ctk", "tq4"});
    CHECK(unreadable.status == 1);
    CHECK(contains(unreadable.error, "its header is not JSON: the file is damaged; name another file with --prompt-cache"));
    files.directory.write("story.kv", bytes.substr(0, bytes.size() / 2));
    CHECK(generate(story, files.cache, {"--device", "cpu", "-ctk", "tq4"}).status == 1);
    files.directory.write("story.kv", ""); // as mktemp makes it
    CHECK(generate(story, files.cache, {"--device", "cpu", "-ctk", "tq4"}).status == 0);
    CHECK(files.bytes() == bytes);
}

TEST_CASE("flags that make no sense, and places where nothing can be written, are said before anything runs") {
    const Files files;
    CHECK(generate(story, "-").status == 2);
    CHECK(generate(story, files.cache, {"--prompt-cache-ro", "--prompt-cache-all"}).status == 2);
    CHECK(run(command({"generate", "-p", "x", "--prompt-cache-ro"})).status == 2);
    CHECK(
        contains(generate(story, files.cache, {"--prompt-cache-ro"}).error, "does not exist, and --prompt-cache-ro only reads"));
    const Finished nowhere = generate(story, "/no/such/directory/story.kv");
    CHECK(nowhere.status == 1);
    CHECK(nowhere.output == "");
    CHECK(contains(nowhere.error, "cannot write /no/such/directory/story.kv"));
    CHECK(files.count() == 0);
}

#ifndef _WIN32
TEST_CASE("a disk that is full costs neither the answer nor the file that was there") {
    const Files files;
    REQUIRE(generate("My name is Tom.", files.cache).status == 0);
    const std::string bytes = files.bytes();
    const Command longer = command({"generate", "-p", story, "--device", "cpu", "--prompt-cache", files.cache});
    const Finished full = run_in_shell(longer, R"(ulimit -f 8; "$@" >"$out")");
    CHECK(full.status == 1);
    CHECK(full.output == run(command({"generate", "-p", story, "--device", "cpu"})).output);
    CHECK(contains(full.error, "not saved: cannot write"));
    CHECK(files.bytes() == bytes);
    CHECK(files.count() == 1);
}
#endif
