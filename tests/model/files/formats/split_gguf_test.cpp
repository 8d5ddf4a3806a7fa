// Split GGUF files: any part opens the whole, and parts that do not belong together are refused by name.
#include "base/error.h"
#include "base/path_text.h"
#include "model/files/formats/gguf_writer.h"
#include "model/files/formats/open.h"
#include "tests/support/temporary_file.h"
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;

namespace {

// Three parts: the keys alone, then tensors a, and b and c.
struct Parts {
    struct Part {
        uint16_t no, count;
        int32_t tensors_count = 3;
        std::vector<std::string> tensors;
        bool exists = true;
    };
    std::vector<Part> parts{{0, 3, 3, {}}, {1, 3, 3, {"a"}}, {2, 3, 3, {"b", "c"}}};
    std::string stem = "tiny";

    static std::string name(const std::string& stem, size_t number) {
        return stem + "-0000" + std::to_string(number) + "-of-00003.gguf";
    }

    void write(const TemporaryDirectory& directory) const {
        for (size_t i = 0; i < parts.size(); ++i) {
            const Part& part = parts[i];
            GgufWriter w;
            if (i == 0) w.set("general.name", "whole");
            w.set_raw("split.no", 2, raw(part.no));
            w.set_raw("split.count", 2, raw(part.count));
            w.set_raw("split.tensors.count", 5, raw(part.tensors_count));
            for (const std::string& tensor : part.tensors) w.add_tensor(tensor, GgmlType::F32, {4});
            if (part.exists) directory.write(name(stem, i + 1), w.zeros());
        }
    }

    // The error of opening part `number`; "" when there is none.
    std::string error(size_t number = 1) const {
        const TemporaryDirectory directory;
        write(directory);
        try {
            open_model_file(directory.path() / name(stem, number));
            return "";
        } catch (const Error& e) {
            CHECK(std::string_view(e.what()).starts_with(utf8_text(directory.path())));
            CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
            return e.what();
        }
    }
};

template <class Change> void check_refused(Change change, const std::string& why, size_t number = 1) {
    Parts parts;
    change(parts);
    const std::string error = parts.error(number);
    CAPTURE(error);
    CAPTURE(why);
    CHECK(error.find(why) != std::string::npos);
}

} // namespace

TEST_CASE("any part opens the whole model") {
    const TemporaryDirectory directory;
    Parts().write(directory);
    for (size_t number = 1; number <= 3; ++number) {
        const ModelFile file = open_model_file(directory.path() / Parts::name("tiny", number));
        CHECK(file.path() == directory.path() / Parts::name("tiny", 1));
        CHECK(file.text("general.name") == "whole");
        REQUIRE(file.tensors().size() == 3);
        for (size_t i = 0; i < 3; ++i) {
            CHECK(file.tensors()[i].name == std::string(1, "abc"[i]));
            CHECK(file.tensors()[i].data.size() == 16);
            CHECK(char(file.tensors()[i].data.back()) == '\0'); // it is still mapped
        }
    }
}

TEST_CASE("parts that do not belong together are refused") {
    for (const size_t given : {1, 2})
        check_refused([](Parts& p) { p.parts[2].exists = false; }, "part 3 of 3 is missing: there is no", given);
    check_refused([](Parts& p) { p.parts[0].exists = false; }, "part 1 of 3 is missing", 2);
    check_refused([](Parts& p) { p.parts[1].no = 2; }, "that it is part 3 of 3, but it is named as part 2 of 3");
    check_refused([](Parts& p) { p.parts[1].no = 2; },
                  "it is part 3 of 3 of a split model, so its name must end in -00003-of-00003.gguf", 2);
    check_refused([](Parts& p) { p.parts[1].count = 2; }, "that it is part 2 of 2, but it is named as part 2 of 3");
    check_refused([](Parts& p) { p.parts[1].count = 0; }, "that it is part 2 of 0");
    check_refused([](Parts& p) { p.parts[0].count = 4; }, "its name must end in -00001-of-00004.gguf");
    check_refused([](Parts& p) { p.parts[0].count = 10000; }, "one of 10000 parts; we read at most 9999");
    check_refused([](Parts& p) { p.parts[0].tensors_count = 4; }, "'split.tensors.count' is 4, but its 3 parts hold 3 tensors");
    check_refused([](Parts& p) { p.parts[0].tensors_count = -1; }, "'split.tensors.count' is -1, less than 0");
    check_refused([](Parts& p) { p.parts[1].tensors = {"b"}; }, "two parts hold tensor 'b'");
    check_refused([](Parts& p) { p.parts[2].tensors = {"b"}; }, "is 3, but its 3 parts hold 2 tensors");
    CHECK(Parts().error().empty());
}

TEST_CASE("a part under another name is refused") {
    const TemporaryDirectory directory;
    Parts().write(directory);
    std::filesystem::rename(directory.path() / Parts::name("tiny", 2), directory.path() / "renamed.gguf");
    CHECK_THROWS_WITH_AS(
        open_model_file(directory.path() / "renamed.gguf"),
        (utf8_text(directory.path() / "renamed.gguf") +
         ": it is part 2 of 3 of a split model, so its name must end in -00002-of-00003.gguf for the others to be "
         "found")
            .c_str(),
        Error);
}
