#include "apps/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace deepinfer {
namespace {

void die_of(int signal, int terminated_early) {
  StopSignals signals(terminated_early);
  kill(getpid(), signal);
  while (true) pause();
}

class StopSignalsDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StopSignalsDeathTest, SigtermUntilTheCommandExpectsItHasTheCodeOfTheCommand) {
  EXPECT_EXIT(die_of(SIGTERM, kExitOk), testing::ExitedWithCode(kExitOk), "");
  EXPECT_EXIT(die_of(SIGTERM, kExitInterrupted), testing::ExitedWithCode(kExitInterrupted), "");
}

TEST_F(StopSignalsDeathTest, CtrlCInterruptsWhateverTheCodeOfSigterm) {
  EXPECT_EXIT(die_of(SIGINT, kExitOk), testing::ExitedWithCode(kExitInterrupted), "");
}

}  // namespace
}  // namespace deepinfer
