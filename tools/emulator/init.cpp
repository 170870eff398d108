// The first process of the guest: runs the programs of /tests, one after the other, and ends the emulator.
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

namespace {

// Whether it exits with 0.
bool run(const std::filesystem::path& program) {
    std::printf("emulator: %s begins\n", program.filename().c_str());
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl(program.c_str(), program.c_str(), nullptr);
        std::perror("execl");
        _exit(127);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) std::perror("fork");
    std::printf("emulator: %s %s, status %d\n", program.filename().c_str(), status == 0 ? "succeeds" : "FAILS", status);
    return status == 0;
}

}  // namespace

int main() {
    mount("proc", "/proc", "proc", 0, nullptr);
    mount("dev", "/dev", "devtmpfs", 0, nullptr);
    std::vector<std::filesystem::path> programs;
    for (const auto& entry : std::filesystem::directory_iterator("/tests")) programs.push_back(entry.path());
    std::sort(programs.begin(), programs.end());
    const auto failed = std::count_if(programs.begin(), programs.end(), [](const auto& program) { return !run(program); });
    std::printf("emulator: %zu programs, %ld failed\n", programs.size(), static_cast<long>(failed));
    std::fflush(stdout);
    sleep(1);  // the serial port is slow
    iopl(3);
    for (const char c : {'S', 'h', 'u', 't', 'd', 'o', 'w', 'n'}) outb(static_cast<unsigned char>(c), 0x8900);  // Bochs' own
    for (;;) pause();
}
