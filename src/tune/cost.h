// Where the time of an estimate goes. Plain values.
#pragma once

namespace tutti::tune {

/// Microseconds.
struct Cost {
  double launchUs = 0;    ///< to start and to end, whatever is moved
  double hopsUs = 0;      ///< waits for other ranks, one after the other
  double messagesUs = 0;  ///< to send and to receive on that way
  double slicesUs = 0;    ///< what every further slice adds
  double trafficUs = 0;   ///< bytes, through memory and over links

  double sum() const { return launchUs + hopsUs + messagesUs + slicesUs + trafficUs; }
};

}  // namespace tutti::tune
